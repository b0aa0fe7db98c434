package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"

	"github.com/redykv/redykv/cmd/redykv/internal/settings"
	"github.com/redykv/redykv/internal/units"
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

// The image has what the program takes from its machine: certificates, where crypto/x509 looks for them
// first, and a directory for temporary files.
func TestImage(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "packaging", "Containerfile"))
	if err != nil {
		t.Fatal(err)
	}
	_, image, _ := strings.Cut(string(text), "\nFROM scratch\n")
	for _, path := range []string{"/etc/ssl/certs/ca-certificates.crt", "/tmp", "/data"} {
		if !regexp.MustCompile(`(?m)^COPY .* ` + path + `$`).MatchString(image) {
			t.Errorf("the image has no %s", path)
		}
	}
}

// TestMemoryOfTheStore checks that the container of the manifest has memory for the log, for a heap
// with what all clients may take, and for an index.
func TestMemoryOfTheStore(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "packaging", "kubernetes", "store", "store.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var set appsv1.StatefulSet
	for document := range bytes.SplitSeq(text, []byte("\n---\n")) {
		if bytes.Contains(document, []byte("kind: StatefulSet\n")) {
			if err := yaml.UnmarshalStrict(document, &set); err != nil {
				t.Fatal(err)
			}
		}
	}
	c := set.Spec.Template.Spec.Containers[0]
	f, cmd := newServeFlags(), new(cobra.Command)
	f.add(cmd)
	if err := cmd.ParseFlags(c.Args[1:]); err != nil {
		t.Fatal(err)
	}
	var heap units.Size
	for _, v := range c.Env {
		if v.Name == "GOMEMLIMIT" {
			if err := heap.Set(v.Value); err != nil {
				t.Fatal(err)
			}
		}
	}
	const (
		collection  = 75 << 20 // Go's heap and buffers besides, see docs/serve.md
		bytesPerKey = 26
		keys        = 10_000_000
	)
	if least := f.clients.requests + f.clients.replies + collection; heap < least {
		t.Errorf("GOMEMLIMIT is %v, want at least %v for the requests and replies of clients", heap, least)
	}
	limit := units.Size(c.Resources.Limits.Memory().Value())
	if index := limit - f.storage.memory - heap; limit < f.storage.memory+heap || index < keys*bytesPerKey {
		t.Errorf("of %v, --memory %v and GOMEMLIMIT %v leave no index of %d keys", limit, f.storage.memory, heap, keys)
	}
}
