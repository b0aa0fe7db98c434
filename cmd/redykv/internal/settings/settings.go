// Package settings reads a command's configuration from its flags, the environment and a YAML
// file, with the same names. The command line overrides the environment, and that overrides
// the file.
//
// A flag --max-clients is REDYKV_MAX_CLIENTS in the environment, with the prefix REDYKV_, and
// max-clients in the file. A repeatable flag is a list in the file, and has one value per line
// in the environment. One newline at the end of a value in the environment or the file is cut
// off: files of secrets and block scalars end with one. A null in the file is an error, as it
// could mean the default, or none.
package settings

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// Mark is a property of a flag.
type Mark string

// The marks.
const (
	// Local excludes a flag from files and from Print.
	Local Mark = "settings-local"
	// Secret hides a flag's value from Print.
	Secret Mark = "settings-secret"
	// Own says that a flag's environment variable has another meaning, which the program reads
	// itself. FromEnvironment does not set such a flag. If the variable is set, FromFile does
	// not set it either, as the environment overrides the file.
	Own Mark = "settings-own"
)

// Set marks flags. It panics if one does not exist.
func (m Mark) Set(flags *pflag.FlagSet, names ...string) {
	for _, name := range names {
		if err := flags.SetAnnotation(name, string(m), nil); err != nil {
			panic(err)
		}
	}
}

func (m Mark) isOn(f *pflag.Flag) bool {
	_, ok := f.Annotations[string(m)]
	return ok || m == Local && f.Name == "help"
}

// FromEnvironment sets flags from the environment, except those already set.
func FromEnvironment(flags *pflag.FlagSet, prefix string) error {
	var errs []error
	flags.VisitAll(func(f *pflag.Flag) {
		name := Variable(prefix, f.Name)
		value, ok := os.LookupEnv(name)
		if !ok || f.Changed || f.Name == "help" {
			return
		}
		if Own.isOn(f) {
			f.Changed = true // FromFile must not override it
			return
		}
		values := []string{value}
		if _, list := f.Value.(pflag.SliceValue); list {
			values = strings.FieldsFunc(value, func(r rune) bool { return r == '\n' })
		}
		if err := set(flags, f, values); err != nil {
			errs = append(errs, fmt.Errorf("$%s: %w", name, err))
		}
	})
	return errors.Join(errs...)
}

// Unknown returns the environment variables with the prefix that belong to no flag. They may
// be misspelt, or belong to other programs.
func Unknown(flags *pflag.FlagSet, prefix string) (names []string) {
	known := make(map[string]bool)
	flags.VisitAll(func(f *pflag.Flag) { known[Variable(prefix, f.Name)] = true })
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		if strings.HasPrefix(name, prefix) && !known[name] {
			names = append(names, name)
		}
	}
	return names
}

// Variable returns the environment variable of a flag.
func Variable(prefix, flag string) string {
	return prefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// FromFile sets flags from a YAML file, a map of their names to values, except those already
// set. After an error some flags may be set.
func FromFile(flags *pflag.FlagSet, name string) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	var document, second yaml.Node
	documents := yaml.NewDecoder(bytes.NewReader(text))
	switch err := documents.Decode(&document); {
	case errors.Is(err, io.EOF): // empty, or only comments
		return nil
	case err != nil:
		return fmt.Errorf("%s: %w", name, err)
	}
	if err := documents.Decode(&second); err == nil {
		return fmt.Errorf("%s, line %d: a second document: want only one", name, second.Line)
	} else if !errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: %w", name, err)
	}
	root := document.Content[0]
	if root.Kind != yaml.MappingNode {
		return fmt.Errorf("%s, line %d: want a map of settings to values", name, root.Line)
	}
	known := make(map[string]bool)
	for i := 0; i < len(root.Content); i += 2 {
		key, value := root.Content[i], root.Content[i+1]
		at := fmt.Sprintf("%s, line %d: %s", name, key.Line, key.Value)
		f := flags.Lookup(key.Value)
		switch {
		case f == nil || Local.isOn(f):
			return fmt.Errorf("%s: unknown setting", at)
		case known[key.Value]:
			return fmt.Errorf("%s: is set twice", at)
		}
		known[key.Value] = true
		values, err := valuesOf(value, f)
		if err != nil {
			return fmt.Errorf("%s: %w", at, err)
		}
		if f.Changed {
			continue
		}
		if err := set(flags, f, values); err != nil {
			return fmt.Errorf("%s: %w", at, err)
		}
	}
	return nil
}

// errNull is the error for a null in the file.
var errNull = errors.New(`null is no value: remove the setting for its default, or write "" or "null" if that is meant`)

// isNull reports whether n is null: nothing, ~ or null without quotes.
func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

// valuesOf returns the values of a flag in the file.
func valuesOf(n *yaml.Node, f *pflag.Flag) ([]string, error) {
	n = target(n)
	_, list := f.Value.(pflag.SliceValue)
	switch {
	case isNull(n):
		return nil, errNull
	case n.Kind == yaml.ScalarNode && f.Value.Type() == "bool":
		value := n.Value // the flag rejects it if it is no boolean
		var truth bool
		if n.Decode(&truth) == nil { // YAML also has yes and on for true
			value = strconv.FormatBool(truth)
		}
		return []string{value}, nil
	case n.Kind == yaml.ScalarNode:
		return []string{n.Value}, nil
	case n.Kind != yaml.SequenceNode || !list:
		return nil, errors.New("want one value")
	}
	values := []string{}
	for _, element := range n.Content {
		element = target(element)
		switch {
		case isNull(element):
			return nil, fmt.Errorf("line %d: %w", element.Line, errNull)
		case element.Kind != yaml.ScalarNode:
			return nil, fmt.Errorf("line %d: want a list of values", element.Line)
		}
		values = append(values, element.Value)
	}
	return values, nil
}

// target returns the node that an alias stands for, and any other node itself.
func target(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// set sets a flag to a value or to a list, each without one newline at its end.
func set(flags *pflag.FlagSet, f *pflag.Flag, values []string) error {
	for i, value := range values {
		values[i] = strings.TrimSuffix(value, "\n")
	}
	if list, ok := f.Value.(pflag.SliceValue); ok {
		if err := list.Replace(values); err != nil {
			return err
		}
		f.Changed = true
		return nil
	}
	if err := f.Value.Set(values[0]); err != nil {
		if Secret.isOn(f) {
			return errors.New("invalid value")
		}
		if _, ok := errors.AsType[*strconv.NumError](err); ok { // its text has a function's name
			return fmt.Errorf("%q: want a value of type %s", values[0], f.Value.Type())
		}
		return err
	}
	f.Changed = true
	return nil
}

// Print writes the flags' values as a file for FromFile, each after its description. For a
// secret it only writes whether it is set.
func Print(w io.Writer, flags *pflag.FlagSet) error {
	var b strings.Builder
	var failed error
	flags.VisitAll(func(f *pflag.Flag) {
		if Local.isOn(f) {
			return
		}
		_, usage := pflag.UnquoteUsage(f)
		fmt.Fprintf(&b, "# %s\n", usage)
		if Secret.isOn(f) {
			if value := f.Value.String(); value != "" && value != "[]" {
				b.WriteString("# (set, but not shown)\n")
			}
			fmt.Fprintf(&b, "# %s:\n", f.Name)
			return
		}
		var value any = scalar(f)
		if list, ok := f.Value.(pflag.SliceValue); ok {
			value = list.GetSlice()
		}
		line, err := yaml.Marshal(map[string]any{f.Name: value})
		if err != nil {
			failed = err
		}
		b.Write(line)
	})
	if failed == nil {
		_, failed = io.WriteString(w, b.String())
	}
	return failed
}

// scalar returns a flag's value as a YAML node: numbers and booleans without quotes.
func scalar(f *pflag.Flag) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Value: f.Value.String()}
	switch f.Value.Type() {
	case "bool", "int", "int64", "float64":
	default:
		n.Tag = "!!str"
	}
	return n
}
