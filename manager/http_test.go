package manager

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/redykv/redykv/internal/api/managerv1"
	"github.com/redykv/redykv/internal/api/managerv1/managerv1connect"
)

// The control API can be called without our client, by a POST of JSON.
func TestJSON(t *testing.T) {
	m, _ := serve(t, Options{Allocator: newScripted(t, 64<<20)})
	post := func(method, body string) (int, map[string]any) {
		t.Helper()
		resp, err := http.Post(m.URL()+"/redykv.manager.v1.ManagerService/"+method, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		answer := make(map[string]any)
		if resp.Header.Get("Content-Type") == "application/json" {
			if err := json.Unmarshal(text, &answer); err != nil {
				t.Fatalf("%s: %v: %s", method, err, text)
			}
		}
		return resp.StatusCode, answer
	}
	status, answer := post("Allocate", `{"requestId": "a request by hand", "capacity": "3145728", "regionSize": 1048576, "slo": {"maxLatencyUs": 100, "recordSize": 24}}`)
	id, _ := answer["cacheId"].(string)
	if status != http.StatusOK || id == "" || answer["regionSize"] != "1048576" {
		t.Fatalf("Allocate: %d %v", status, answer)
	}
	for _, tc := range []struct {
		method, body string
		status       int
		code         string
	}{
		{"Allocate", `{"requestId": "a request by hand, 2", "capacity": 0}`, 400, "invalid_argument"},
		{"Allocate", `{"capacity": -1}`, 400, "invalid_argument"},
		{"Allocate", `{"capacity"`, 400, "invalid_argument"},
		{"Allocate", `[]`, 400, "invalid_argument"},
		{"Allocate", `{"requestId": "a request by hand, 3", "capacity": 1, "transport": "` + strings.Repeat("x", maxMessage) + `"}`, 429, "resource_exhausted"},
		{"Allocate", `{"requestId": "a request by hand, 4", "capacity": 1099511627776}`, 429, "resource_exhausted"},
		{"Deallocate", `{}`, 200, ""},
		{"Deallocate", `{"cacheId": "` + strings.Repeat("x", 10_000) + `"}`, 200, ""},
		{"Heartbeat", `{"vmId": "nobody"}`, 404, "not_found"},
		{"Register", `{}`, 400, "invalid_argument"},
		{"Register", `{"vm": {"id": "a", "controlUrl": "file:///etc", "transport": "tcp", "fabricAddr": "x", "memory": 1}}`, 400, "invalid_argument"},
		{"Register", `{"vm": {"id": "a", "controlUrl": "http://x", "transport": "tcp", "fabricAddr": "x", "memory": 1, "freeMemory": 2}}`, 400, "invalid_argument"},
		{"Register", `{"vm": {"id": "a", "controlUrl": "http://x", "transport": "tcp", "fabricAddr": "x", "memory": "18446744073709551615"}}`, 400, "invalid_argument"},
		{"Describe", `{}`, 200, ""},
		{"Deallocate", `{"cacheId": "` + id + `"}`, 200, ""},
	} {
		status, answer := post(tc.method, tc.body)
		if code, _ := answer["code"].(string); status != tc.status || code != tc.code {
			t.Errorf("%s %.80s: %d %v, want %d %s", tc.method, tc.body, status, answer, tc.status, tc.code)
		}
	}
	resp, err := http.Post(m.URL()+"/redykv.manager.v1.ManagerService/Nonsense", "application/json", bytes.NewReader(nil))
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusNotFound {
		t.Errorf("an unknown method: %v, %v", resp.Status, err)
	}
	http.DefaultClient.CloseIdleConnections()
}

// An unknown field is refused by name, whatever the JSON content type, and nothing is
// allocated: a misspelt SLO is not ignored.
func TestUnknownFields(t *testing.T) {
	m, client := serve(t, Options{Allocator: newScripted(t, 64<<20)})
	defer http.DefaultClient.CloseIdleConnections()
	for _, contentType := range []string{"application/json", "application/json; charset=utf-8", "application/json;charset=UTF-8"} {
		for field, body := range map[string]string{
			"nonsense":               `{"capacity": 1, "nonsense": 1}`,
			"max_latency":            `{"capacity": "1048576", "slo": {"max_latency": 0.001, "recordSize": 64}}`,
			"regoinSize":             `{"capacity": "1048576", "regoinSize": "4096"}`,
			strings.Repeat("x", 200): `{"capacity": 1, "` + strings.Repeat("x", maxMessage/2) + `": 1}`,
		} {
			resp, err := http.Post(m.URL()+managerv1connect.ManagerServiceAllocateProcedure, contentType, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			var answer struct{ Code, Message string }
			err = json.NewDecoder(resp.Body).Decode(&answer)
			if err := errors.Join(err, resp.Body.Close()); err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != http.StatusBadRequest || answer.Code != "invalid_argument" || !strings.Contains(answer.Message, `unknown field "`+field) || len(answer.Message) > 1000 {
				t.Errorf("%s, %.80s: %s, %v", contentType, body, resp.Status, answer)
			}
		}
	}
	all, err := client.Describe(testContext(t), connect.NewRequest(&managerv1.DescribeRequest{}))
	if err != nil || len(all.Msg.GetCaches()) != 0 {
		t.Errorf("what was refused is there: %v, %v", all, err)
	}
}

// gRPC and gRPC-Web are served at the same address.
func TestGRPC(t *testing.T) {
	m, _ := serve(t, Options{Allocator: newScripted(t, 64<<20)})
	h2c := &http.Transport{Protocols: new(http.Protocols)}
	h2c.Protocols.SetUnencryptedHTTP2(true)
	defer h2c.CloseIdleConnections()
	for name, option := range map[string]connect.ClientOption{"grpc": connect.WithGRPC(), "grpc-web": connect.WithGRPCWeb()} {
		t.Run(name, func(t *testing.T) {
			client := managerv1connect.NewManagerServiceClient(&http.Client{Transport: h2c}, m.URL(), option)
			ca, err := allocateBytes(t, client, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			stream, err := client.Watch(testContext(t), connect.NewRequest(&managerv1.WatchRequest{CacheId: ca.GetCacheId()}))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := client.Deallocate(testContext(t), connect.NewRequest(&managerv1.DeallocateRequest{CacheId: ca.GetCacheId()})); err != nil {
				t.Error(err)
			}
			if !stream.Receive() || stream.Msg().GetKind() != managerv1.WatchResponse_KIND_CACHE_DELETED {
				t.Errorf("event %v, %v", stream.Msg(), stream.Err())
			}
			if err := stream.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestReachable(t *testing.T) {
	for addr, want := range map[string]string{
		"127.0.0.1:7070": "127.0.0.1:7070", "0.0.0.0:7070": "localhost:7070", "[::]:7070": "localhost:7070",
		"[::1]:7070": "[::1]:7070", ":7070": "localhost:7070", "host.example:1": "host.example:1",
	} {
		if got := reachable(addr); got != want {
			t.Errorf("reachable(%q) = %q, want %q", addr, got, want)
		}
	}
}
