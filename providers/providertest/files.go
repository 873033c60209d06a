package providertest

import (
	"bytes"
	"errors"
	"io/fs"
	"strings"
	"testing/iotest"

	"github.com/sandglass-dev/sandglass/sandbox"
)

func fileRules() []rule {
	return []rule{
		{"what was uploaded is downloaded, byte for byte", filesRoundTrip},
		{"an upload makes the folders above it", filesFolders},
		{"an upload replaces what was there", filesReplace},
		{"names are taken as they are", filesNames},
		{"commands and files see one file system", filesShared},
		{"a missing file is fs.ErrNotExist and not ErrNotFound", filesMissing},
		{"a relative or empty name is ErrInvalid, before any request", filesRelative},
		{"a reader or writer that fails is an error", filesBroken},
		{"a folder is no file", filesFolder},
	}
}

func (t *trial) upload(sb sandbox.Sandbox, name string, data []byte) {
	t.Helper()
	if err := sb.Upload(t.ctx, name, onlyReader{bytes.NewReader(data)}); err != nil {
		t.Fatalf("upload %q: %v", name, err)
	}
}

func (t *trial) download(sb sandbox.Sandbox, name string) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := sb.Download(t.ctx, name, &out); err != nil {
		t.Fatalf("download %q: %v", name, err)
	}
	return out.Bytes()
}

func filesRoundTrip(t *trial) {
	sb := t.box()
	large := make([]byte, 3<<20+1)
	for i := range large {
		large[i] = byte(i*i>>3 ^ i>>11)
	}
	for name, data := range map[string][]byte{"empty": nil, "text": []byte("a line\r\n\nno newline at the end"), "large": large} {
		t.upload(sb, t.dir()+"/"+name, data)
		if got := t.download(sb, t.dir()+"/"+name); !bytes.Equal(got, data) {
			t.Errorf("%s: %d bytes went in and %d came out, or others", name, len(data), len(got))
		}
	}
}

func filesFolders(t *trial) {
	sb := t.box()
	name := t.dir() + "/new/deep/er/file"
	t.upload(sb, name, []byte("x"))
	if got := t.download(sb, name); string(got) != "x" {
		t.Errorf("got %q", got)
	}
}

func filesReplace(t *trial) {
	sb := t.box()
	name := t.dir() + "/file"
	t.upload(sb, name, []byte("the first and longer content"))
	t.upload(sb, name, []byte("second"))
	if got := t.download(sb, name); string(got) != "second" {
		t.Errorf("got %q", got)
	}
}

func filesNames(t *trial) {
	sb := t.box()
	names := []string{
		"with space and ünïcödé 文件", `"double" and it's`, "-rf", "$HOME `id` $(id);x&y|z>w", "a=b 50%25 ?q#f *", `back\slash`, ".hidden ",
	}
	for _, n := range names {
		t.upload(sb, t.dir()+"/"+n, []byte(n))
	}
	for _, n := range names {
		if got := t.download(sb, t.dir()+"/"+n); string(got) != n {
			t.Errorf("%q holds %q", n, got)
		}
	}
}

func filesShared(t *trial) {
	sb := t.box()
	t.upload(sb, t.dir()+"/it's in", []byte("from outside"))
	if out := t.output(sb, sandbox.Cmd{Args: []string{"cat", t.dir() + "/it's in"}}); out != "from outside" {
		t.Errorf("the command reads %q", out)
	}
	t.output(sb, sandbox.Cmd{Args: []string{"sh", "-c", `printf 'from inside' >"$0"`, t.dir() + "/out"}})
	if got := t.download(sb, t.dir()+"/out"); string(got) != "from inside" {
		t.Errorf("the download reads %q", got)
	}
}

func filesMissing(t *trial) {
	sb := t.box()
	for _, name := range []string{t.dir() + "/missing", "/no/such/folder/file"} {
		var out bytes.Buffer
		err := sb.Download(t.ctx, name, &out)
		if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("download %s: error %v, want fs.ErrNotExist", name, err)
		}
		if errors.Is(err, sandbox.ErrNotFound) {
			t.Errorf("download %s: error %v matches ErrNotFound, which means the sandbox", name, err)
		}
		if out.Len() > 0 {
			t.Errorf("download %s wrote %q", name, out.String())
		}
	}
}

func filesRelative(t *trial) {
	sb := t.box()
	for _, name := range []string{"relative", "./x", ""} {
		t.quietly("name "+name, func() {
			if err := sb.Upload(t.ctx, name, strings.NewReader("x")); !errors.Is(err, sandbox.ErrInvalid) {
				t.Errorf("upload %q: error %v, want ErrInvalid", name, err)
			}
			if err := sb.Download(t.ctx, name, new(bytes.Buffer)); !errors.Is(err, sandbox.ErrInvalid) {
				t.Errorf("download %q: error %v, want ErrInvalid", name, err)
			}
		})
	}
}

func filesBroken(t *trial) {
	sb := t.box()
	broken := errors.New("broken")
	if err := sb.Upload(t.ctx, t.dir()+"/part", iotest.TimeoutReader(iotest.ErrReader(broken))); err == nil {
		t.Error("an upload whose reader fails claims success")
	}
	t.upload(sb, t.dir()+"/whole", bytes.Repeat([]byte("x"), 100_000))
	if err := sb.Download(t.ctx, t.dir()+"/whole", writerFunc(func([]byte) (int, error) { return 0, broken })); err == nil {
		t.Error("a download whose writer fails claims success")
	}
}

func filesFolder(t *trial) {
	sb := t.box()
	t.upload(sb, t.dir()+"/folder/file", nil)
	var out bytes.Buffer
	if err := sb.Download(t.ctx, t.dir()+"/folder", &out); err == nil {
		t.Errorf("the download of a folder claims success, with %d bytes", out.Len())
	}
	if err := sb.Upload(t.ctx, t.dir()+"/folder", strings.NewReader("x")); err == nil {
		t.Error("an upload over a folder claims success")
	}
	if got := t.download(sb, t.dir()+"/folder/file"); len(got) != 0 {
		t.Errorf("the file in it now holds %q", got)
	}
}
