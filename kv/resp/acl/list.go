package acl

import (
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/redykv/redykv/kv/resp"
)

// Set implements [resp.UserList].
func (us *Users) Set(name string, rules []string) error {
	if name == "" || strings.ContainsAny(name, spaces) {
		return errors.New("Usernames can't contain spaces or null characters") //nolint:staticcheck // Redis's words
	}
	rules = joinSelectors(rules)
	for _, rule := range rules {
		if strings.HasPrefix(rule, "(") && !strings.HasSuffix(rule, ")") {
			return fmt.Errorf("Unmatched parenthesis in acl selector starting at '%s'.", strings.Fields(rule)[0]) //nolint:staticcheck // Redis's words
		}
	}
	us.mu.Lock()
	defer us.mu.Unlock()
	u := &user{name: name, of: new(account)}
	if a := us.byName[name]; a != nil {
		*u = *a.now.Load()
	}
	for _, rule := range rules {
		if err := u.apply(rule); err != nil {
			reason := asSyntax
			if why, ok := errors.AsType[*ruleError](err); ok {
				reason = why.redis
			}
			return fmt.Errorf("Error in ACL SETUSER modifier '%s': %s", rule, reason) //nolint:staticcheck // Redis's words
		}
	}
	us.publish(u)
	return nil
}

// Delete implements [resp.UserList].
func (us *Users) Delete(name string) bool {
	us.mu.Lock()
	defer us.mu.Unlock()
	return name != resp.DefaultUser && us.remove(name)
}

// remove removes an account. The caller holds mu.
func (us *Users) remove(name string) bool {
	a := us.byName[name]
	if a == nil {
		return false
	}
	delete(us.byName, name)
	a.now.Store(nil)
	return true
}

// Find implements [resp.UserList].
func (us *Users) Find(name string) resp.User {
	if u := us.find(name); u != nil {
		return u
	}
	return nil
}

// Names implements [resp.UserList].
func (us *Users) Names() []string {
	us.mu.RLock()
	defer us.mu.RUnlock()
	return us.names()
}

// names is Names for callers that hold mu.
func (us *Users) names() []string { return slices.Sorted(maps.Keys(us.byName)) }

// Lines implements [resp.UserList].
func (us *Users) Lines() []string {
	us.mu.RLock()
	defer us.mu.RUnlock()
	return us.lines()
}

// lines is Lines for callers that hold mu.
func (us *Users) lines() (lines []string) {
	for _, name := range us.names() {
		lines = append(lines, us.byName[name].now.Load().line())
	}
	return lines
}

// Describe implements [resp.UserList].
func (us *Users) Describe(name string) *resp.UserDescription {
	u := us.find(name)
	if u == nil {
		return nil
	}
	d := &resp.UserDescription{Flags: u.flags(), Passwords: u.hashes(), PermissionsDescription: u.describe()}
	for _, s := range u.selectors {
		d.Selectors = append(d.Selectors, s.(*permissions).describe())
	}
	return d
}

// line returns the user as Redis's files of users have it.
func (u *user) line() string {
	words := append([]string{"user", u.name}, u.flags()...)
	for _, hash := range u.hashes() {
		words = append(words, "#"+hash)
	}
	words = append(words, u.words()...)
	for _, s := range u.selectors {
		words = append(words, "("+strings.Join(s.(*permissions).words(), " ")+")")
	}
	return strings.Join(words, " ")
}

func (u *user) flags() []string {
	flags := []string{"off"}
	if u.on {
		flags[0] = "on"
	}
	if u.open {
		flags = append(flags, "nopass")
	}
	if u.payload != "" {
		flags = append(flags, u.payload)
	}
	return flags
}

func (u *user) hashes() []string {
	hashes := make([]string, 0, len(u.passwords))
	for i := range u.passwords {
		hashes = append(hashes, hex.EncodeToString(u.passwords[i][:]))
	}
	return hashes
}

// words returns the rules that give these permissions to a new user.
func (p *permissions) words() (words []string) {
	d := p.describe()
	if d.Keys != "" {
		words = append(words, d.Keys)
	}
	if !p.allChannels() {
		words = append(words, "resetchannels")
	}
	if d.Channels != "" {
		words = append(words, d.Channels)
	}
	return append(words, d.Commands)
}

func (p *permissions) describe() (d resp.PermissionsDescription) {
	commands, rules := []string{"-@all"}, p.commands
	if len(rules) > 0 && rules[0].all {
		commands, rules = []string{"+@all"}, rules[1:]
	}
	for _, r := range rules {
		sign := "-"
		if r.allow {
			sign = "+"
		}
		commands = append(commands, sign+r.text)
	}
	var keys, channels []string
	for _, k := range p.keys {
		keys = append(keys, map[resp.Access]string{bothWays: "~", resp.AccessRead: "%R~", resp.AccessWrite: "%W~"}[k.access]+string(k.pattern))
	}
	for _, c := range p.channels {
		channels = append(channels, "&"+string(c))
	}
	d.Commands, d.Keys, d.Channels = strings.Join(commands, " "), strings.Join(keys, " "), strings.Join(channels, " ")
	return d
}
