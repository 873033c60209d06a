package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/tmc/langchaingo/llms"
)

// Scripted is a model that says what its steps say, one an answer. It takes the place of a real one (of
// github.com/tmc/langchaingo/llms/openai, for instance), so that the example needs neither network nor key. Each
// conversation has its own.
type Scripted struct {
	Steps []Step
	next  int
}

// A Step makes one answer from what the tool has returned so far in the conversation.
type Step func(results []string) *llms.ContentChoice

var _ llms.Model = (*Scripted)(nil)

// GenerateContent implements [llms.Model].
func (s *Scripted) GenerateContent(ctx context.Context, messages []llms.MessageContent, _ ...llms.CallOption) (*llms.ContentResponse, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if s.next == len(s.Steps) {
		return nil, fmt.Errorf("the model's script has no step %d", s.next)
	}
	var results []string
	for _, m := range messages {
		for _, part := range m.Parts {
			if r, ok := part.(llms.ToolCallResponse); ok {
				results = append(results, r.Content)
			}
		}
	}
	s.next++
	return &llms.ContentResponse{Choices: []*llms.ContentChoice{s.Steps[s.next-1](results)}}, nil
}

// Call implements [llms.Model].
func (s *Scripted) Call(ctx context.Context, prompt string, options ...llms.CallOption) (string, error) {
	return llms.GenerateFromSinglePrompt(ctx, s, prompt, options...)
}

// run is an answer that asks for scripts to be run.
func run(scripts ...string) *llms.ContentChoice {
	answer := &llms.ContentChoice{}
	for i, script := range scripts {
		answer.ToolCalls = append(answer.ToolCalls, llms.ToolCall{
			ID: fmt.Sprint("call_", i), Type: "function",
			FunctionCall: &llms.FunctionCall{Name: "run_code", Arguments: script},
		})
	}
	return answer
}

// say is an answer that ends the conversation.
func say(text string) *llms.ContentChoice { return &llms.ContentChoice{Content: text} }

// stdout is what a script has printed, by what the tool says.
func stdout(result string) string {
	_, out, _ := strings.Cut(result, "stdout:\n")
	out, _, _ = strings.Cut(out, "stderr:\n")
	return strings.TrimSpace(out)
}
