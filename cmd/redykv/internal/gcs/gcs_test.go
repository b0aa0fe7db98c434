package gcs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"
	"google.golang.org/api/storage/v1"
)

// fake is an in-memory server of the JSON API for the driver's requests.
type fake struct {
	mu      sync.Mutex // guards the fields below
	objects map[string][]byte
	partial map[string][]byte // pending resumable uploads
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	name, _ := url.PathUnescape(strings.TrimPrefix(strings.TrimPrefix(r.URL.EscapedPath(), "/storage/v1/b/mine/o"), "/"))
	query := r.URL.Query()
	switch {
	case strings.HasPrefix(r.URL.Path, "/upload/"):
		f.upload(w, r)
	case r.Method == http.MethodGet && name == "":
		var list struct {
			Items         []map[string]string `json:"items"`
			NextPageToken string              `json:"nextPageToken,omitempty"`
		}
		var names []string
		for n := range f.objects {
			if strings.HasPrefix(n, query.Get("prefix")) && n > query.Get("pageToken") {
				names = append(names, n)
			}
		}
		slices.Sort(names)
		if len(names) > 2 { // pages of two
			names, list.NextPageToken = names[:2], names[1]
		}
		for _, n := range names {
			list.Items = append(list.Items, map[string]string{"name": n, "size": strconv.Itoa(len(f.objects[n]))})
		}
		_ = json.NewEncoder(w).Encode(list)
	case f.objects[name] == nil:
		http.Error(w, "no such object", http.StatusNotFound)
	case r.Method == http.MethodDelete:
		delete(f.objects, name)
		w.WriteHeader(http.StatusNoContent)
	case query.Get("alt") == "media":
		http.ServeContent(w, r, "", timeOf(&storage.Object{Updated: "2026-01-02T03:04:05Z"}), strings.NewReader(string(f.objects[name])))
	default:
		_ = json.NewEncoder(w).Encode(map[string]string{"name": name, "size": strconv.Itoa(len(f.objects[name]))})
	}
}

// upload accepts an object in one request of two parts, or in several of 256 KiB each.
func (f *fake) upload(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	if id := query.Get("upload_id"); id != "" {
		data, _ := io.ReadAll(r.Body)
		f.partial[id] = append(f.partial[id], data...)
		if strings.HasSuffix(r.Header.Get("Content-Range"), "/*") {
			w.Header().Set("X-Http-Status-Code-Override", "308")
			w.Header().Set("Range", fmt.Sprintf("bytes=0-%d", len(f.partial[id])-1))
			return
		}
		f.objects[id] = f.partial[id]
		_, _ = io.WriteString(w, "{}")
		return
	}
	var object struct{ Name string }
	_, params, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	body := io.Reader(r.Body)
	parts := multipart.NewReader(r.Body, params["boundary"])
	if query.Get("uploadType") == "multipart" {
		body, _ = parts.NextPart()
	}
	_ = json.NewDecoder(body).Decode(&object)
	if query.Get("ifGenerationMatch") == "0" && f.objects[object.Name] != nil {
		http.Error(w, "it exists", http.StatusPreconditionFailed)
		return
	}
	if query.Get("uploadType") == "resumable" {
		w.Header().Set("Location", "http://"+r.Host+r.URL.Path+"?upload_id="+object.Name)
		return
	}
	part, _ := parts.NextPart()
	data, err := io.ReadAll(part)
	if err == nil {
		f.objects[object.Name] = data
		_, _ = io.WriteString(w, "{}")
	}
}

// TestBucket uses the driver in the way of package device/blob.
func TestBucket(t *testing.T) {
	f := &fake{objects: make(map[string][]byte), partial: make(map[string][]byte)}
	server := httptest.NewServer(f)
	defer server.Close()
	t.Setenv("STORAGE_EMULATOR_HOST", strings.TrimPrefix(server.URL, "http://"))
	ctx := t.Context()
	b, err := blob.OpenBucket(ctx, "gs://mine?prefix=a/")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Close() }()
	create := &blob.WriterOptions{ContentType: "application/octet-stream", IfNotExist: true, BufferSize: 256 << 10}
	large := strings.Repeat("0123456789", 60000)
	for name, text := range map[string]string{"one": "first", "two": large, "three": "third", "b/four": ""} {
		if err := b.WriteAll(ctx, name, []byte(text), create); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.WriteAll(ctx, "one", []byte("again"), create); gcerrors.Code(err) != gcerrors.FailedPrecondition {
		t.Errorf("an object that exists: %v", err)
	}
	if data, err := b.ReadAll(ctx, "two"); err != nil || string(data) != large || len(f.partial) != 1 {
		t.Errorf("%d bytes, %d resumable uploads, %v", len(data), len(f.partial), err)
	}
	for _, c := range []struct {
		off, n int64
		want   string
	}{{10, 5, "01234"}, {3, 0, ""}, {int64(len(large)) - 2, -1, "89"}} {
		r, err := b.NewRangeReader(ctx, "two", c.off, c.n, nil)
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if string(data) != c.want || r.Size() != int64(len(large)) || errors.Join(err, r.Close()) != nil {
			t.Errorf("range %d+%d: %q of %d bytes, %v", c.off, c.n, data, r.Size(), err)
		}
	}
	var names []string
	for it := b.List(nil); ; {
		o, err := it.Next(ctx)
		if err != nil {
			break
		}
		names = append(names, o.Key)
	}
	if want := []string{"b/four", "one", "three", "two"}; !slices.Equal(names, want) {
		t.Errorf("listed %q", names)
	}
	if err := b.Delete(ctx, "one"); err != nil {
		t.Error(err)
	}
	if _, err := b.ReadAll(ctx, "one"); gcerrors.Code(err) != gcerrors.NotFound {
		t.Errorf("a deleted object: %v", err)
	}
	cancelled, cancel := context.WithCancel(ctx)
	w, err := b.NewWriter(cancelled, "half", create)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(w, large)
	cancel()
	if err := w.Close(); err == nil || f.objects["a/half"] != nil {
		t.Errorf("a write that was given up: %v", err)
	}
}

func TestURLs(t *testing.T) {
	for text, want := range map[string]string{
		"gs://":                     "name is missing",
		"gs://mine?color=red":       `invalid query parameter "color"`,
		"gs://mine?anonymous=maybe": "anonymous",
		"gs://mine?anonymous=true":  "",
		"gs://mine?access_id=-":     "",
	} {
		b, err := blob.OpenBucket(t.Context(), text)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
		if err == nil {
			_ = b.Close()
		}
	}
}
