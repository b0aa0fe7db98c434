package acl

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/redykv/redykv/kv/resp"
)

// AddFile adds the users of a file. Each line has the word user, a name and rules. Empty lines
// and lines that begin with # are ignored. Load and Save use the same file.
func (us *Users) AddFile(name string) error {
	read, err := readFile(name)
	if err != nil {
		return err
	}
	us.mu.Lock()
	defer us.mu.Unlock()
	us.file = name
	for _, u := range read {
		us.publish(u)
	}
	return nil
}

// readFile returns the users of a file.
func readFile(name string) (read []*user, err error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("acl: %w", err)
	}
	seen := make(map[string]bool)
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		words := strings.Fields(line)
		switch {
		case len(words) == 0 || words[0][0] == '#':
			continue
		case words[0] != "user" || len(words) < 2:
			return nil, fmt.Errorf("acl: %s, line %d: want the word user, a name and rules", name, n)
		case seen[words[1]]:
			return nil, fmt.Errorf("acl: %s, line %d: user %s is defined twice", name, n, words[1])
		}
		seen[words[1]] = true
		u, err := parse(line)
		if err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", name, n, err)
		}
		read = append(read, u)
	}
	return read, nil
}

// Load implements [resp.UserList]. If the file does not have the default user, that user stays as it
// is.
func (us *Users) Load() error {
	us.mu.Lock()
	defer us.mu.Unlock()
	if us.file == "" {
		return resp.ErrNoUsersFile
	}
	read, err := readFile(us.file)
	if err != nil {
		return err
	}
	keep := map[string]bool{resp.DefaultUser: true}
	for _, u := range read {
		keep[u.name] = true
		us.publish(u)
	}
	for name := range us.byName {
		if !keep[name] {
			us.remove(name)
		}
	}
	return nil
}

// Save implements [resp.UserList]. It replaces the file whole.
func (us *Users) Save() error {
	us.mu.RLock()
	defer us.mu.RUnlock()
	if us.file == "" {
		return resp.ErrNoUsersFile
	}
	var text strings.Builder
	for _, line := range us.lines() {
		text.WriteString(line + "\n")
	}
	if err := replaceFile(us.file, text.String()); err != nil {
		return fmt.Errorf("acl: %w", err)
	}
	return nil
}

// replaceFile writes a file with the mode of the one that it replaces, durably.
func replaceFile(name, text string) (err error) {
	mode := os.FileMode(0o600)
	if info, err := os.Stat(name); err == nil {
		mode = info.Mode().Perm()
	}
	f, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = os.Remove(f.Name())
		}
	}()
	if err = f.Chmod(mode); err != nil {
		return err
	}
	if _, err = f.WriteString(text); err != nil {
		return err
	}
	if err = f.Sync(); err != nil {
		return err
	}
	if err = f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}
