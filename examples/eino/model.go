package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/cloudwego/eino/components/model"
	"github.com/cloudwego/eino/schema"
)

// Scripted is a model that says what its steps say, one an answer. It takes the place of a real one (of
// github.com/cloudwego/eino-ext, for instance), so that the example needs neither network nor key. Which step is next
// it counts from the messages, so that several conversations may have it at once.
type Scripted []Step

// A Step makes one answer from what the tools have returned so far in the conversation.
type Step func(results []string) *schema.Message

var _ model.ToolCallingChatModel = Scripted(nil)

// Generate implements [model.BaseChatModel].
func (s Scripted) Generate(ctx context.Context, input []*schema.Message, _ ...model.Option) (*schema.Message, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	turn, results := 0, []string(nil)
	for _, m := range input {
		switch m.Role {
		case schema.Assistant:
			turn++
		case schema.Tool:
			results = append(results, m.Content)
		}
	}
	if turn >= len(s) {
		return nil, fmt.Errorf("the model's script has no step %d", turn)
	}
	return s[turn](results), nil
}

// Stream implements [model.BaseChatModel].
func (s Scripted) Stream(ctx context.Context, input []*schema.Message, opts ...model.Option) (*schema.StreamReader[*schema.Message], error) {
	answer, err := s.Generate(ctx, input, opts...)
	if err != nil {
		return nil, err
	}
	return schema.StreamReaderFromArray([]*schema.Message{answer}), nil
}

// WithTools implements [model.ToolCallingChatModel].
func (s Scripted) WithTools([]*schema.ToolInfo) (model.ToolCallingChatModel, error) { return s, nil }

// A Call is what the model asks of run_code.
type Call struct {
	Script  string `json:"script"`
	Seconds int    `json:"timeout_seconds,omitempty"`
}

// run is an answer that asks for calls, all at once.
func run(calls ...Call) *schema.Message {
	var asked []schema.ToolCall
	for i, c := range calls {
		arguments, _ := json.Marshal(c) // strings and numbers: nothing here can fail
		asked = append(asked, schema.ToolCall{
			ID: fmt.Sprint("call_", i), Type: "function",
			Function: schema.FunctionCall{Name: "run_code", Arguments: string(arguments)},
		})
	}
	return schema.AssistantMessage("", asked)
}

// say is an answer that ends the conversation.
func say(text string) *schema.Message { return schema.AssistantMessage(text, nil) }

// stdout is what a script has printed, by what the tool says.
func stdout(result string) string {
	var said struct {
		Stdout string `json:"stdout"`
	}
	if json.Unmarshal([]byte(result), &said) != nil {
		return "not known"
	}
	return strings.TrimSpace(said.Stdout)
}
