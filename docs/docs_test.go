// Package docs_test keeps the documents true to the tree: links and paths that they name
// exist, and each tag of the paper that the code names is explained.
package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// read returns the repository's files that keep accepts, by their paths from its root.
func read(t *testing.T, keep func(path string) bool) map[string]string {
	t.Helper()
	files := make(map[string]string)
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if name := entry.Name(); name != ".." && strings.HasPrefix(name, ".") || name == "testdata" || name == "node_modules" {
				return filepath.SkipDir
			}
			return nil
		}
		if path = filepath.ToSlash(strings.TrimPrefix(path, "../")); !keep(path) {
			return nil
		}
		content, err := os.ReadFile(filepath.Join("..", path))
		files[path] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 10 {
		t.Fatalf("found only %d files", len(files))
	}
	return files
}

func markdown(path string) bool { return strings.HasSuffix(path, ".md") }

// exists says whether a path from the root of the repository exists.
func exists(path string) bool {
	_, err := os.Stat(filepath.Join("..", path))
	return err == nil
}

// TestLinks: each relative link leads to a file, and to a heading of it.
func TestLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	files := read(t, markdown)
	for name, content := range files {
		for _, match := range link.FindAllStringSubmatch(content, -1) {
			target, heading, _ := strings.Cut(match[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			path := name
			if target != "" {
				path = filepath.Join(filepath.Dir(name), target)
			}
			if !exists(path) {
				t.Errorf("%s: link to %s, which does not exist", name, match[1])
			} else if heading != "" && !hasHeading(files[path], heading) {
				t.Errorf("%s: link to %s, which has no such heading", name, match[1])
			}
		}
	}
}

// hasHeading says whether a document has a heading with this anchor.
func hasHeading(content, anchor string) bool {
	dropped := regexp.MustCompile("[^a-z0-9_ -]")
	for line := range strings.Lines(content) {
		if !strings.HasPrefix(line, "#") {
			continue
		}
		heading := strings.TrimSpace(strings.TrimLeft(line, "#"))
		if strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(heading), ""), " ", "-") == anchor {
			return true
		}
	}
	return false
}

// TestPaths: each path into the tree that a document names exists, from the root or from the
// document's folder.
func TestPaths(t *testing.T) {
	path := regexp.MustCompile("`((?:kv|hlog|device|ssdtier|redytier|manager|server|ycsb|internal|cmd|docs|packaging|scripts)/[\\w./-]*[\\w])`")
	for name, content := range read(t, markdown) {
		for _, match := range path.FindAllStringSubmatch(content, -1) {
			if !exists(match[1]) && !exists(filepath.Join(filepath.Dir(name), match[1])) {
				t.Errorf("%s names %s, which does not exist", name, match[1])
			}
		}
	}
}

// TestTags: docs/paper.md explains each tag (R1, A1, Q1) that any other file names.
func TestTags(t *testing.T) {
	const page = "docs/paper.md"
	tag := regexp.MustCompile(`\b[RAQ][1-9][0-9]?\b`)
	files := read(t, func(path string) bool {
		return markdown(path) || strings.HasSuffix(path, ".go") || strings.HasSuffix(path, ".proto")
	})
	explained := make(map[string]bool)
	for _, match := range regexp.MustCompile(`(?m)^\| ([RAQ][0-9]+) \|`).FindAllStringSubmatch(files[page], -1) {
		explained[match[1]] = true
	}
	if len(explained) < 200 {
		t.Errorf("%s explains only %d tags", page, len(explained))
	}
	for name, content := range files {
		for _, found := range tag.FindAllString(content, -1) {
			if !explained[found] {
				t.Errorf("%s names %s, which %s does not explain", name, found, page)
			}
		}
	}
}
