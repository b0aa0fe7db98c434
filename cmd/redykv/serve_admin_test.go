package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/device/blob"
	"github.com/redykv/redykv/internal/testrun"
	"github.com/redykv/redykv/kv"
	"github.com/redykv/redykv/kv/resp"
)

// /readyz says that writes fail, also with a durability of which no commit tells it.
func TestReadyTellsOfFailingWrites(t *testing.T) {
	faulty := device.NewFaulty(device.NewMemory(), device.FaultyOptions{})
	store, err := kv.Open(kv.Options{Device: faulty, Memory: 64 << 10, PageSize: 4 << 10})
	if err != nil {
		t.Fatal(err)
	}
	server := resp.NewServer(store, resp.Options{Durability: resp.DurabilityNone})
	a := new(admin)
	a.setUnready("")
	a.opened(servedStore{server: server, store: store})
	checkReady(t, a, http.StatusOK, "ready")
	faulty.Set(device.FaultyOptions{WriteError: 1})
	for err == nil {
		err = store.Upsert(context.Background(), []byte("key"), make([]byte, 3000))
	}
	checkReady(t, a, http.StatusServiceUnavailable, device.ErrFault.Error())
	if err := server.Close(); err != nil {
		t.Error(err)
	}
	if err := store.Close(); err == nil {
		t.Error("the store closes without an error")
	}
}

// /readyz and a metric say that no upload to the bucket has ever succeeded. A bucket that has a copy
// of the store may fail: the store is on the disk.
func TestReadyTellsOfAnEmptyBucket(t *testing.T) {
	local, dir := device.NewMemory(), t.TempDir()
	catalogs, segments := filepath.Join(dir, "catalog"), filepath.Join(dir, "segment")
	obstruct := func(path string) { // a file where a directory has to be, which uploads may make again
		t.Helper()
		testrun.Until(t, path+" is a file", func() bool {
			return errors.Join(os.RemoveAll(path), os.WriteFile(path, nil, 0o600)) == nil
		})
	}
	obstruct(catalogs)
	for round := range 2 {
		opts := blob.Options{Every: time.Millisecond, Patience: 1, Linger: -1, Logger: slog.New(slog.DiscardHandler)}
		bucket, err := blob.OpenURL(t.Context(), local.Reopen(), "file://"+filepath.ToSlash(dir), opts)
		if err != nil {
			t.Fatal(err)
		}
		store, err := kv.Open(kv.Options{Device: bucket, Memory: 64 << 10, PageSize: 4 << 10})
		if err != nil {
			t.Fatal(err)
		}
		server := resp.NewServer(store, resp.Options{})
		a := &admin{registry: prometheus.NewPedanticRegistry()}
		a.setUnready("")
		a.opened(servedStore{server, store, bucket})
		upload := func(what string, done func(blob.Status) bool) {
			t.Helper()
			testrun.Until(t, what, func() bool {
				if err := errors.Join(store.Upsert(t.Context(), []byte("key"), nil), store.Commit(t.Context())); err != nil {
					t.Fatal(err)
				}
				return done(bucket.Status())
			})
		}
		if round == 0 {
			upload("an upload fails", func(s blob.Status) bool { return s.Err != nil })
			checkReady(t, a, http.StatusServiceUnavailable, "no upload to the bucket has ever succeeded: ")
			checkNumber(t, a, "redykv_bucket_empty", 1)
			if err := os.Remove(catalogs); err != nil {
				t.Fatal(err)
			}
			upload("an upload succeeds", func(s blob.Status) bool { return s.Err == nil && s.Uploads > 0 })
			checkNumber(t, a, "redykv_bucket_failing", 0)
		}
		obstruct(segments)
		upload("an upload fails again", func(s blob.Status) bool { return s.Err != nil })
		checkReady(t, a, http.StatusOK, "ready")
		checkNumber(t, a, "redykv_bucket_empty", 0)
		checkNumber(t, a, "redykv_bucket_failing", 1)
		if err := errors.Join(server.Close(), store.Close()); err != nil {
			t.Error(err)
		}
	}
}

func checkReady(t *testing.T, a *admin, code int, text string) {
	t.Helper()
	w := httptest.NewRecorder()
	a.ready(w, nil)
	if w.Code != code || !strings.Contains(w.Body.String(), text) {
		t.Errorf("%d %s, want %d and %q", w.Code, w.Body, code, text)
	}
}

// checkNumber checks a metric without labels.
func checkNumber(t *testing.T, a *admin, name string, want float64) {
	t.Helper()
	all, err := a.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if f.GetName() == name {
			if got := f.GetMetric()[0].GetGauge().GetValue(); got != want {
				t.Errorf("%s is %v, want %v", name, got, want)
			}
			return
		}
	}
	t.Errorf("there is no metric %s", name)
}
