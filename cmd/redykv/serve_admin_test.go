package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/redykv/redykv/device"
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
	a.opened(server, store)
	ready := func(code int, text string) {
		t.Helper()
		w := httptest.NewRecorder()
		a.ready(w, nil)
		if w.Code != code || !strings.Contains(w.Body.String(), text) {
			t.Errorf("%d %s, want %d and %q", w.Code, w.Body, code, text)
		}
	}
	ready(http.StatusOK, "ready")
	faulty.Set(device.FaultyOptions{WriteError: 1})
	for err == nil {
		err = store.Upsert(context.Background(), []byte("key"), make([]byte, 3000))
	}
	ready(http.StatusServiceUnavailable, device.ErrFault.Error())
	if err := server.Close(); err != nil {
		t.Error(err)
	}
	if err := store.Close(); err == nil {
		t.Error("the store closes without an error")
	}
}
