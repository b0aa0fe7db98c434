package main

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/spf13/pflag"

	"github.com/redykv/redykv/cmd/redykv/internal/settings"
)

// TestPackaging checks that the installed files use existing settings with valid values.
func TestPackaging(t *testing.T) {
	dir := filepath.Join("..", "..", "packaging")
	cmd := newServeCmd()
	cmd.SetArgs([]string{"--config", filepath.Join(dir, "serve.yaml"), "--print-config"})
	cmd.SetOut(io.Discard)
	if err := cmd.Execute(); err != nil {
		t.Error(err)
	}
	variable := regexp.MustCompile(servePrefix + `[A-Z][A-Z_]*`)
	known := make(map[string]bool)
	newServeCmd().Flags().VisitAll(func(f *pflag.Flag) { known[settings.Variable(servePrefix, f.Name)] = true })
	for _, file := range []string{"redykv.service", "Containerfile", "serve.yaml"} {
		text, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
		found := variable.FindAllString(string(text), -1)
		if len(found) == 0 {
			t.Errorf("%s sets nothing", file)
		}
		for _, name := range found {
			if !known[name] {
				t.Errorf("%s: there is no setting %s", file, name)
			}
		}
	}
}
