// Command langchaingo gives an agent of github.com/tmc/langchaingo a tool that runs code in sandboxes.
//
//	go run ./examples/langchaingo
//	go run ./examples/langchaingo -provider memory -shape conversation
//
// There are two natural shapes. With "run", each run of the tool is a scope: code and sandbox are gone before the model
// sees the result, nothing lives while the model thinks, and no run can spoil another. With "conversation", the whole
// conversation is one scope: files stay from run to run, and the sandbox ends with the conversation, however that ends.
//
// The agent is langchaingo's own with its executor, the model a scripted one: it makes a mistake and mends it, and
// starts a script that never ends. In tool.go is what to take for a program of your own.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/tmc/langchaingo/agents"
	"github.com/tmc/langchaingo/chains"
	"github.com/tmc/langchaingo/llms"
	"github.com/tmc/langchaingo/tools"

	"github.com/sandglass-dev/sandglass/examples/internal/demo"
	"github.com/sandglass-dev/sandglass/sandbox"
)

func main() {
	provider := flag.String("provider", "auto", "what to run on: auto, docker or memory; auto is docker if an engine answers")
	shape := flag.String("shape", "run", "what has a sandbox of its own: a run, or a conversation")
	timeout := flag.Duration("timeout", 2*time.Second, "how long a script of the model may run")
	flag.Parse()

	// The first signal ends the agent, and with it the sandboxes. A second one ends the program at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)

	if err := converse(ctx, *provider, *shape, *timeout); err != nil {
		fmt.Fprintln(os.Stderr, "langchaingo:", err)
		os.Exit(1)
	}
}

func converse(ctx context.Context, provider, shape string, timeout time.Duration) (err error) {
	ask := map[string]func(context.Context, *sandbox.Manager, llms.Model, string, time.Duration) (string, error){
		"run": Runs, "conversation": Conversation,
	}[shape]
	if ask == nil {
		return fmt.Errorf("shape %q is none of run and conversation", shape)
	}
	p, why, err := demo.Provider(ctx, provider)
	if err != nil {
		return err
	}
	fmt.Printf("provider: %s (%s)\n", p.Name(), why)
	m, err := sandbox.NewManager(p, sandbox.Config{
		Fleet: "langchaingo",
		// A conversation that neither runs anything nor gets an answer of its model for so long has lost its way.
		Scope:     sandbox.Scope{Window: time.Minute, MaxLifetime: 10 * time.Minute, StallTimeout: 3 * time.Minute},
		Observers: []sandbox.Observer{diary},
	})
	if err != nil {
		return err
	}
	// A delete that could not be verified is tried once more, and what may be left is in the error.
	defer func() {
		sctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		err = errors.Join(err, m.Shutdown(sctx))
	}()
	answer, err := ask(ctx, m, &Scripted{Steps: aloud(script())}, "What do 1 to 10 make?", timeout)
	if err != nil {
		return err
	}
	fmt.Println("the answer:      ", answer)
	return nil
}

// Runs has an agent answer a question. Each run of its tool has a sandbox of its own.
func Runs(ctx context.Context, m *sandbox.Manager, llm llms.Model, question string, timeout time.Duration) (string, error) {
	return chains.Run(ctx, agent(llm, EachInItsOwn(m, timeout)), question)
}

// Conversation has an agent answer a question. There is one sandbox for all runs of its tool, which is gone when
// Conversation returns or panics. If its lease is lost, the agent's context ends.
func Conversation(ctx context.Context, m *sandbox.Manager, llm llms.Model, question string, timeout time.Duration) (answer string, err error) {
	err = m.WithSandbox(ctx, func(ctx context.Context, sb sandbox.Sandbox) error {
		answer, err = chains.Run(ctx, agent(llm, AllIn(sb, timeout)), question)
		return err
	})
	return answer, err
}

func agent(llm llms.Model, code *CodeTool) *agents.Executor {
	return agents.NewExecutor(agents.NewOpenAIFunctionsAgent(llm, []tools.Tool{code}), agents.WithMaxIterations(20))
}

// script is a model that makes two mistakes, mends both, and answers with what it has seen.
func script() []Step {
	return []Step{
		func([]string) *llms.ContentChoice { return run("python3 -c 'print(sum(range(11)))'") }, // there is no Python
		func([]string) *llms.ContentChoice { // never ends: nobody counts
			return run("n=0; while [ $n -lt 10 ]; do sum=$((sum + n)); sleep 1; done; echo $sum")
		},
		func([]string) *llms.ContentChoice {
			return run("n=0; while [ $n -lt 10 ]; do n=$((n + 1)); sum=$((sum + n)); done; echo $sum | tee /tmp/sum")
		},
		func([]string) *llms.ContentChoice { return run("cat /tmp/sum || echo not kept") },
		func(results []string) *llms.ContentChoice {
			return say(fmt.Sprintf("1 to 10 make %s (the file with it: %s)", stdout(results[2]), stdout(results[3])))
		},
	}
}

// aloud is steps with what goes in and out printed.
func aloud(steps []Step) []Step {
	var loud []Step
	heard := 0
	for _, step := range steps {
		loud = append(loud, func(results []string) *llms.ContentChoice {
			for _, r := range results[heard:] {
				fmt.Printf("the tool returns: %q\n", r)
			}
			heard = len(results)
			answer := step(results)
			for _, c := range answer.ToolCalls {
				fmt.Println("the model asks:  ", c.FunctionCall.Name, c.FunctionCall.Arguments)
			}
			return answer
		})
	}
	return loud
}

// diary is an observer that prints when a sandbox begins and when it has ended.
func diary(_ context.Context, e sandbox.Event) {
	switch {
	case e.Err != nil: // comes back from WithSandbox or Shutdown, if it matters
	case e.Op == sandbox.OpReady:
		fmt.Printf("sandbox %.12s runs\n", e.Info.ID)
	case e.Op == sandbox.OpConfirm:
		fmt.Printf("sandbox %.12s is gone\n", e.Info.ID)
	}
}
