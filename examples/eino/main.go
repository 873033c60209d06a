// Command eino gives an agent of github.com/cloudwego/eino a tool that runs code, each time in a sandbox of its own that
// is gone before the model sees the result.
//
//	go run ./examples/eino
//	go run ./examples/eino -provider memory
//
// The agent is eino's ReAct agent, the model a scripted one: it makes a mistake and mends it, starts a script that never
// ends, and asks for two runs at once. In tool.go is what to take for a program of your own.
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

	"github.com/cloudwego/eino/components/model"
	"github.com/cloudwego/eino/components/tool"
	"github.com/cloudwego/eino/compose"
	"github.com/cloudwego/eino/flow/agent/react"
	"github.com/cloudwego/eino/schema"

	"github.com/sandglass-dev/sandglass/examples/internal/demo"
	"github.com/sandglass-dev/sandglass/sandbox"
)

func main() {
	provider := flag.String("provider", "auto", "what to run on: auto, docker or memory; auto is docker if an engine answers")
	flag.Parse()

	// The first signal ends the agent, and with it the sandboxes. A second one ends the program at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)

	if err := converse(ctx, *provider); err != nil {
		fmt.Fprintln(os.Stderr, "eino:", err)
		os.Exit(1)
	}
}

func converse(ctx context.Context, provider string) (err error) {
	p, why, err := demo.Provider(ctx, provider)
	if err != nil {
		return err
	}
	fmt.Printf("provider: %s (%s)\n", p.Name(), why)
	m, err := sandbox.NewManager(p, sandbox.Config{
		Fleet:     "eino",
		Scope:     sandbox.Scope{Window: time.Minute, MaxLifetime: 10 * time.Minute},
		MaxLive:   4, // a model may ask for any number of runs at once: the others wait for their turn
		Observers: []sandbox.Observer{diary},
	})
	if err != nil {
		return err
	}
	// Whatever the agent has left under way is ended here and waited for, and what may be left is in the error.
	defer func() {
		sctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		err = errors.Join(err, m.Shutdown(sctx))
	}()
	answer, err := Ask(ctx, m, aloud(script()), "What is 6 times 7, and what do 1 to 10 make?")
	if err != nil {
		return err
	}
	fmt.Println("the answer:      ", answer)
	return nil
}

// Ask has an agent with the model chat, our tool and others answer a question.
func Ask(ctx context.Context, m *sandbox.Manager, chat model.ToolCallingChatModel, question string, others ...tool.BaseTool) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // if a tool panics, eino returns without waiting for those beside it
	code := &CodeTool{Manager: m}
	agent, err := react.NewAgent(ctx, &react.AgentConfig{
		ToolCallingModel: chat,
		ToolsConfig: compose.ToolsNodeConfig{
			Tools: append([]tool.BaseTool{code}, others...),
			UnknownToolsHandler: func(_ context.Context, name, _ string) (string, error) { // for the model to mend, too
				return fmt.Sprintf("There is no tool %q.", name), nil
			},
		},
		MaxStep: 20,
	})
	if err != nil {
		return "", err
	}
	answer, err := agent.Generate(ctx, []*schema.Message{schema.UserMessage(question)})
	if err = code.Join(err); err != nil {
		return "", err
	}
	return answer.Content, nil
}

// script is a model that makes two mistakes, mends both, and answers with what it has seen.
func script() Scripted {
	return Scripted{
		func([]string) *schema.Message { return run(Call{Script: "python3 -c 'print(6 * 7)'"}) }, // there is no Python
		func([]string) *schema.Message { return run(Call{Script: "echo $((6 * 7))"}) },
		func([]string) *schema.Message { // never ends: nobody counts
			return run(Call{Script: "n=0; while [ $n -lt 10 ]; do sum=$((sum + n)); sleep 1; done; echo $sum", Seconds: 2})
		},
		func([]string) *schema.Message {
			return run(
				Call{Script: "n=0; while [ $n -lt 10 ]; do n=$((n + 1)); sum=$((sum + n)); done; echo $sum"},
				Call{Script: "echo $((10 * (10 + 1) / 2))"},
			)
		},
		func(results []string) *schema.Message {
			return say(fmt.Sprintf("6 times 7 is %s, and 1 to 10 make %s (by formula: %s)",
				stdout(results[1]), stdout(results[3]), stdout(results[4])))
		},
	}
}

// aloud is s with what goes in and out printed.
func aloud(s Scripted) Scripted {
	var loud Scripted
	heard := 0
	for _, step := range s {
		loud = append(loud, func(results []string) *schema.Message {
			for _, r := range results[heard:] {
				fmt.Println("the tool returns:", r)
			}
			heard = len(results)
			answer := step(results)
			for _, c := range answer.ToolCalls {
				fmt.Println("the model asks:  ", c.Function.Name, c.Function.Arguments)
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
