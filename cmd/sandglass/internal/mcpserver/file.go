package mcpserver

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"path"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	maxWrite    = 16 << 20
	defaultRead = 64 << 10
	maxRead     = 4 << 20
)

type writeIn struct {
	Path          string  `json:"path" jsonschema:"Absolute path of the file in the sandbox. Missing parent folders are made; a file that is there is replaced."`
	Content       *string `json:"content,omitempty" jsonschema:"The whole content, as text. Give either this or content_base64."`
	ContentBase64 *string `json:"content_base64,omitempty" jsonschema:"The whole content, as base64, for what is no text. Give either this or content."`
}

type writeOut struct {
	SandboxID string `json:"sandbox_id"`
	Path      string `json:"path"`
	Bytes     int    `json:"bytes" jsonschema:"What was written."`
}

// content returns what is to be written.
func content(in writeIn) ([]byte, error) {
	var data []byte
	switch {
	case !path.IsAbs(in.Path):
		return nil, tell("path is %q: give an absolute path. Nothing was written.", in.Path)
	case in.Content != nil && in.ContentBase64 != nil, in.Content == nil && in.ContentBase64 == nil:
		return nil, tell(`Give either content or content_base64, and "" for an empty file. Nothing was written.`)
	case in.Content != nil:
		data = []byte(*in.Content)
	default:
		var err error
		if data, err = base64.StdEncoding.DecodeString(*in.ContentBase64); err != nil {
			return nil, tell("content_base64 is no base64: %v. Nothing was written.", err)
		}
	}
	if len(data) > maxWrite {
		return nil, tell("The content has %d bytes, and one call takes up to %d. Nothing was written. Write parts and join them by run_command.", len(data), maxWrite)
	}
	return data, nil
}

func (s *session) write(ctx context.Context, _ *mcp.CallToolRequest, in writeIn) (*mcp.CallToolResult, writeOut, error) {
	data, err := content(in)
	if err != nil {
		return nil, writeOut{}, err
	}
	b, err := s.use(ctx)
	if err != nil {
		return nil, writeOut{}, err
	}
	if err := b.sb.Upload(ctx, in.Path, bytes.NewReader(data)); err != nil {
		return nil, writeOut{}, s.failed(ctx, b, "writing "+in.Path, err)
	}
	return nil, writeOut{b.sb.ID(), in.Path, len(data)}, nil
}

type readIn struct {
	Path     string `json:"path" jsonschema:"Absolute path of the file in the sandbox."`
	Offset   int64  `json:"offset,omitempty" jsonschema:"Where to begin, in bytes. Default: 0."`
	MaxBytes int    `json:"max_bytes,omitempty" jsonschema:"How much to return at most. Default: 65536; at most 4194304."`
	Encoding string `json:"encoding,omitempty" jsonschema:"text, base64 or auto. Default: auto, which is text where the content is UTF-8, else base64."`
}

type readOut struct {
	SandboxID  string `json:"sandbox_id"`
	Path       string `json:"path"`
	Encoding   string `json:"encoding" jsonschema:"text or base64: how content is to be read."`
	Content    string `json:"content"`
	Bytes      int    `json:"bytes" jsonschema:"How many bytes of the file content stands for."`
	More       bool   `json:"more" jsonschema:"There is more: call again with offset next_offset."`
	NextOffset int64  `json:"next_offset"`
}

// Encodings of a file's content.
const (
	encodeAuto   = "auto"
	encodeText   = "text"
	encodeBase64 = "base64"
)

// check completes in with defaults.
func (in readIn) check() (readIn, error) {
	if in.Encoding == "" {
		in.Encoding = encodeAuto
	}
	if in.MaxBytes == 0 {
		in.MaxBytes = defaultRead
	}
	switch {
	case !path.IsAbs(in.Path):
		return in, tell("path is %q: give an absolute path.", in.Path)
	case in.Offset < 0:
		return in, tell("offset is %d: give 0 or more.", in.Offset)
	case in.MaxBytes < 0 || in.MaxBytes > maxRead:
		return in, tell("max_bytes is %d: give 1 to %d, and read what is longer in parts by offset.", in.MaxBytes, maxRead)
	case in.Encoding != encodeAuto && in.Encoding != encodeText && in.Encoding != encodeBase64:
		return in, tell("encoding is %q: give text, base64 or auto.", in.Encoding)
	}
	return in, nil
}

func (s *session) read(ctx context.Context, _ *mcp.CallToolRequest, in readIn) (*mcp.CallToolResult, readOut, error) {
	in, err := in.check()
	if err != nil {
		return nil, readOut{}, err
	}
	b, err := s.use(ctx)
	if err != nil {
		return nil, readOut{}, err
	}
	p := &part{skip: in.Offset, room: in.MaxBytes}
	if err := b.sb.Download(ctx, in.Path, p); err != nil && !p.more {
		return nil, readOut{}, s.failed(ctx, b, "reading "+in.Path, err)
	}
	out := readOut{SandboxID: b.sb.ID(), Path: in.Path, More: p.more}
	data := p.data
	if in.Encoding != encodeBase64 && p.more && len(data) > partial(data) {
		data = data[:len(data)-partial(data)] // the rest of the character comes with the next part
	}
	out.Bytes, out.NextOffset = len(data), in.Offset+int64(len(data))
	switch text := utf8.Valid(data); {
	case in.Encoding == encodeText || in.Encoding == encodeAuto && text:
		out.Encoding, out.Content = encodeText, valid(data)
	default:
		out.Encoding, out.Content = encodeBase64, base64.StdEncoding.EncodeToString(data)
	}
	return nil, out, nil
}

var errEnough = errors.New("enough of the file")

// A part takes a part of a file, and ends the transfer when it has it and knows that there is more.
type part struct {
	skip int64
	room int
	data []byte
	more bool
}

func (p *part) Write(b []byte) (int, error) {
	n := len(b)
	skip := min(p.skip, int64(n))
	p.skip -= skip
	b = b[skip:]
	take := min(p.room-len(p.data), len(b))
	p.data = append(p.data, b[:take]...)
	if take < len(b) {
		p.more = true
		return n - (len(b) - take), errEnough
	}
	return n, nil
}
