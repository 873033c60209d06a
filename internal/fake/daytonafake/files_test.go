package daytonafake_test

import (
	"bytes"
	"io"
	"mime"
	"mime/multipart"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sandglass-dev/sandglass/internal/fake/daytonafake"
)

func TestFilesAreCopiedByteForByte(t *testing.T) {
	in(t, daytonafake.Options{}, func(w *world) {
		id := w.create(nil)
		files := "/toolbox/" + id + "/files"
		binary := string([]byte{0, 1, 255, '\n', 0xc3}) + strings.Repeat("x", 1<<20)
		var form bytes.Buffer
		m := multipart.NewWriter(&form)
		for i, name := range []string{"/tmp/data/a b.bin", "rel.txt"} {
			index := []string{"files[0]", "files[1]"}[i]
			require.NoError(w, m.WriteField(index+".path", name))
			part, err := m.CreateFormFile(index+".file", "ignored")
			require.NoError(w, err)
			_, _ = io.WriteString(part, []string{binary, "text"}[i])
		}
		require.NoError(w, m.Close())
		assert.Equal(w, 200, w.do("POST", files+"/bulk-upload", form.String(), "Content-Type", m.FormDataContentType()).status)
		assert.Equal(w, "1048581\ntext", w.exec(id, "stat -c %s '/tmp/data/a b.bin'; cat /home/daytona/rel.txt")["result"])

		r := w.do("GET", files+"/download?path=/tmp/data/a%20b.bin", nil)
		assert.Equal(w, 200, r.status)
		assert.Equal(w, binary, string(r.body))
		said := w.do("GET", files+"/download?path=/none", nil).refused(404)
		assert.Equal(w, []any{"FILE_NOT_FOUND", "DAYTONA_DAEMON"}, []any{said["code"], said["source"]})

		r = w.do("POST", files+"/bulk-download", object{"paths": []string{"/tmp/data/a b.bin", "/none"}})
		assert.Equal(w, 200, r.status, "whatever is missing")
		kind, params, err := mime.ParseMediaType(r.header.Get("Content-Type"))
		require.NoError(w, err)
		assert.Equal(w, []string{"multipart/form-data", "DAYTONA-FILE-BOUNDARY"}, []string{kind, params["boundary"]})
		parts := multipart.NewReader(bytes.NewReader(r.body), params["boundary"])
		first, err := parts.NextPart()
		require.NoError(w, err)
		_, disposition, err := mime.ParseMediaType(first.Header.Get("Content-Disposition"))
		require.NoError(w, err)
		assert.Equal(w, map[string]string{"name": "file", "filename": "/tmp/data/a b.bin"}, disposition)
		data, err := io.ReadAll(first)
		require.NoError(w, err)
		assert.Equal(w, binary, string(data))
		second, err := parts.NextPart()
		require.NoError(w, err)
		assert.Equal(w, "error", second.FormName())
		data, err = io.ReadAll(second)
		require.NoError(w, err)
		missing := `{"statusCode":404,"message":"file not found: /none","code":"FILE_NOT_FOUND","source":"DAYTONA_DAEMON"}`
		assert.JSONEq(w, missing, string(data))

		w.do("POST", files+"/upload-v2?path=/tmp/raw", "raw bytes", "Content-Type", "application/octet-stream").ok()
		assert.Equal(w, "raw bytes", string(w.do("GET", files+"/download?path=/tmp/raw", nil).body))
		w.do("GET", files+"/download", nil).refused(400)
		assert.Equal(w, "daytona\n", w.exec(id, "stat -c %U /tmp/data; touch /tmp/data/beside")["result"], "one user does both")
		said = w.do("POST", files+"/upload-v2?path=/etc/passwd", "x", "Content-Type", "application/octet-stream").refused(403)
		assert.Equal(w, "FILE_ACCESS_DENIED", said["code"])
		w.do("POST", files+"/bulk-upload", "{}").refused(400)
	})
}

func TestFilesAreListedMovedAndRemoved(t *testing.T) {
	in(t, daytonafake.Options{}, func(w *world) {
		id := w.create(nil)
		files := "/toolbox/" + id + "/files"
		assert.Equal(w, 201, w.do("POST", files+"/folder?path=/tmp/d&mode=700", nil).status)
		w.exec(id, "echo hello > /tmp/f; chmod 640 /tmp/f")
		info := w.do("GET", files+"/info?path=/tmp/f", nil).ok()
		for field, want := range map[string]any{
			"name": "f", "isDir": false, "size": 6., "mode": "-rw-r-----", "permissions": "0640", "owner": "daytona",
		} {
			assert.Equal(w, want, info[field], field)
		}
		moment(t, info, "modifiedAt")
		assert.Equal(w, "drwx------", w.do("GET", files+"/info?path=/tmp/d", nil).ok()["mode"])
		assert.Equal(w, 200, w.do("POST", files+"/move?source=/tmp/f&destination=/tmp/d/g", nil).status)
		w.do("POST", files+"/move?source=/tmp/f&destination=/tmp/d/g", nil).refused(404)
		w.do("GET", files+"/info?path=/tmp/f", nil).refused(404)
		assert.Contains(w, string(w.do("GET", files+"?path=/tmp/d", nil).body), `"path":"/tmp/d/g"`)
		assert.NotContains(w, string(w.do("GET", files+"?path=/tmp", nil).body), `"/tmp/d/g"`)
		assert.Contains(w, string(w.do("GET", files+"?path=/tmp&depth=2", nil).body), `"/tmp/d/g"`)
		w.do("GET", files+"?path=/none", nil).refused(404)
		w.do("GET", files+"?path=/tmp&depth=0", nil).refused(400)
		w.do("DELETE", files+"?path=/tmp/d", nil).refused(400)
		assert.Equal(w, 204, w.do("DELETE", files+"?path=/tmp/d&recursive=true", nil).status)
		w.do("DELETE", files+"?path=/tmp/d", nil).refused(404)
	})
}

func TestADiskHasTheSizeThatWasOrdered(t *testing.T) {
	in(t, daytonafake.Options{}, func(w *world) {
		id := w.create(object{"disk": 1, "buildInfo": object{"dockerfileContent": "FROM debian:12\n"}})
		assert.Equal(w, "0\n", w.exec(id, "truncate -s 1000000 /tmp/fits; echo $?")["result"])
		assert.NotEqual(w, "0\n", w.exec(id, "truncate -s 1100000000 /tmp/big 2>/dev/null; echo $?")["result"])
	})
}
