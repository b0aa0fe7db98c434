package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
)

// TestProfilesHideCommandLine checks that nobody reads passwords of the command line at the address
// for operators.
func TestProfilesHideCommandLine(t *testing.T) {
	os.Args = append(os.Args, "--requirepass=sesame")
	defer func() { os.Args = os.Args[:len(os.Args)-1] }()
	mux := http.NewServeMux()
	handleProfiles(mux)
	for _, path := range []string{"", "cmdline", "symbol", "goroutine?debug=2"} {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/debug/pprof/"+path, http.NoBody))
		if strings.Contains(w.Body.String(), "sesame") {
			t.Errorf("/debug/pprof/%s: %s", path, w.Body)
		}
	}
}
