package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/redykv/redykv/internal/machine"
)

// run measures the named parts.
func run(names []string) error {
	work, err := os.MkdirTemp("", "measure-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	bin := filepath.Join(work, "redykv")
	if err := execute("go", "build", "-o", bin, "./cmd/redykv"); err != nil {
		return err
	}
	revision, err := exec.Command("git", "describe", "--always", "--dirty=+").Output()
	if err != nil {
		return fmt.Errorf("revision: %w", err)
	}
	for _, name := range names {
		if name == "all" {
			continue
		}
		i := slices.IndexFunc(parts, func(p part) bool { return p.name == name })
		if i < 0 {
			return fmt.Errorf("unknown part %q: want all, or names of parts in scripts/measure/main.go", name)
		}
		if p := parts[i]; p.from != "" {
			return fmt.Errorf("part %s shows what part %s measures", name, p.from)
		}
	}
	for _, p := range parts {
		if p.from != "" || !slices.Contains(names, p.name) && !slices.Contains(names, "all") {
			continue
		}
		m := measured{Machine: machine.Describe(), Date: time.Now().UTC().Format(time.DateOnly), Revision: strings.TrimSpace(string(revision)), Statistic: p.statistic}
		rows := filepath.Join(work, "rows")
		for _, c := range p.commands {
			args := strings.Fields(strings.NewReplacer("{bin}", bin, "{json}", rows, "{dir}", filepath.Join(work, "out")).Replace(c))
			if err := execute(args[0], args[1:]...); err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
			shown := strings.TrimSpace(strings.NewReplacer("{bin}", "redykv", " --json {json}", "", " --verdict {json}", "", " -outgrows.json {json}", "", " --report-only", "", " --min-kept 0", "").Replace(c))
			if !strings.HasPrefix(shown, "mv ") {
				m.Commands = append(m.Commands, shown)
			}
			text, err := os.ReadFile(rows)
			if errors.Is(err, os.ErrNotExist) {
				continue // the part's next command writes them
			}
			if err != nil {
				return err
			}
			for line := range bytes.Lines(text) {
				m.Rows = append(m.Rows, json.RawMessage(bytes.TrimSpace(line)))
			}
			if err := os.Remove(rows); err != nil {
				return err
			}
		}
		text, err := json.MarshalIndent(m, "", "\t")
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		if err := os.WriteFile(filepath.Join(folder, p.name+".json"), append(text, '\n'), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func execute(name string, args ...string) error {
	fmt.Fprintln(os.Stderr, "+", name, strings.Join(args, " "))
	c := exec.Command(name, args...)
	c.Stdout, c.Stderr = os.Stderr, os.Stderr
	return c.Run()
}
