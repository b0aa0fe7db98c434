package acl

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/redykv/redykv/kv/resp"
	"github.com/redykv/redykv/kv/resp/internal/glob"
)

// user is immutable once it is published.
type user struct {
	name      string
	on        bool
	open      bool   // any password is accepted
	payload   string // Redis's flag about RESTORE, which has no effect
	passwords [][sha256.Size]byte
	permissions
	selectors []resp.Permissions

	free bool     // the result of Unrestricted
	of   *account // that published it
}

// permissions are the permissions of a user or of a selector.
type permissions struct {
	commands []commandRule // the last one that fits decides; if none does, the command is forbidden
	keys     []keyRule
	channels [][]byte // patterns; channels that match none are forbidden
}

// commandRule allows or forbids one of: a command with its subcommands, a subcommand, a
// command with a first argument, the commands of some categories.
type commandRule struct {
	allow      bool
	all        bool
	categories resp.Category
	command    string
	text       string // the rule without its sign
}

func (r *commandRule) fits(command string, is resp.Category) bool {
	if r.command == "" {
		return r.all || r.categories&is != 0
	}
	rest, ok := strings.CutPrefix(command, r.command)
	return ok && (rest == "" || rest[0] == '|')
}

// keyRule allows access to the keys that match pattern.
type keyRule struct {
	access  resp.Access
	pattern []byte
}

// Name implements [resp.User].
func (u *user) Name() string { return u.name }

// Unrestricted implements [resp.User].
func (u *user) Unrestricted() bool { return u.free }

// Current implements [resp.ChangingUser].
func (u *user) Current() resp.User {
	if now := u.of.now.Load(); now != nil {
		return now
	}
	return nil
}

// everyCommand reports whether all commands are allowed.
func (p *permissions) everyCommand() bool {
	return len(p.commands) > 0 && p.commands[0].all && !slices.ContainsFunc(p.commands, func(r commandRule) bool { return !r.allow })
}

// Selectors implements [resp.User].
func (u *user) Selectors() []resp.Permissions { return u.selectors }

// MayRun implements [resp.Permissions].
func (p *permissions) MayRun(command string, is resp.Category) bool {
	for i := len(p.commands) - 1; i >= 0; i-- {
		if r := &p.commands[i]; r.fits(command, is) {
			return r.allow
		}
	}
	return false
}

// MayUse implements [resp.Permissions]. A single rule must allow all of the access.
func (p *permissions) MayUse(key []byte, a resp.Access) bool {
	for i := range p.keys {
		if k := &p.keys[i]; k.access&a == a && glob.Match(k.pattern, key) {
			return true
		}
	}
	return false
}

// MayUseAll implements [resp.Permissions].
func (p *permissions) MayUseAll(a resp.Access) bool {
	return slices.ContainsFunc(p.keys, func(k keyRule) bool {
		return k.access&a == a && len(k.pattern) > 0 && strings.Trim(string(k.pattern), "*") == ""
	})
}

// MayJoin implements [resp.Permissions]. A pattern must be allowed by a rule with the same
// pattern.
func (p *permissions) MayJoin(channel []byte, pattern bool) bool {
	return slices.ContainsFunc(p.channels, func(c []byte) bool {
		return string(c) == "*" || bytes.Equal(c, channel) || !pattern && glob.Match(c, channel)
	})
}

// knows reports whether password is one of the user's. Its time does not depend on the
// passwords.
func (u *user) knows(password []byte) bool {
	sum, known := sha256.Sum256(password), 0
	for i := range u.passwords {
		known |= subtle.ConstantTimeCompare(sum[:], u.passwords[i][:])
	}
	return u.open || known == 1
}

const bothWays = resp.AccessRead | resp.AccessWrite

// apply applies one rule to the user.
func (u *user) apply(rule string) error {
	switch strings.ToLower(rule) {
	case "on", "off":
		u.on = strings.EqualFold(rule, "on")
	case "nopass":
		u.open, u.passwords = true, nil
	case "resetpass":
		u.open, u.passwords = false, nil
	case "reset":
		*u = user{name: u.name, of: u.of, payload: "sanitize-payload"}
	case "clearselectors":
		u.selectors = nil
	case "sanitize-payload", "skip-sanitize-payload":
		u.payload = strings.ToLower(rule) // RESTORE always checks its payload
	default:
		return u.applyOther(rule)
	}
	return nil
}

// ruleError is the reason why a rule is refused, and what Redis says then.
type ruleError struct {
	error
	redis string
}

// The reasons of Redis.
const (
	asSyntax   = "Syntax error"
	asUnknown  = "Unknown command or category name in ACL"
	asPassword = "The password you are trying to remove from the user does not exist"
	asHash     = "The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters"
	asKeys     = "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have any effect. Try 'resetkeys' to start with an empty list of patterns"
	asChannels = "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does not have any effect. Try 'resetchannels' to start with an empty list of channels"
	asFirst    = "Allowing first-arg of a subcommand is not supported"
)

func refused(redis, format string, args ...any) error {
	return &ruleError{fmt.Errorf(format, args...), redis}
}

var errRule = refused(asSyntax, "want on, off, nopass, >password, #hash, ~pattern, +command, +@category, or another of Redis's rules")

func (u *user) applyOther(rule string) error {
	if rule == "" {
		return errRule
	}
	switch value := rule[1:]; rule[0] {
	case '>', '#':
		sum, err := sumOf(rule)
		if err != nil {
			return err
		}
		u.open = false
		if !slices.Contains(u.passwords, sum) {
			u.passwords = append(slices.Clip(u.passwords), sum)
		}
		return nil
	case '<', '!':
		sum, err := sumOf(rule)
		if err != nil {
			return err
		}
		at := slices.Index(u.passwords, sum)
		if at < 0 {
			return refused(asPassword, "the user does not have the password to remove")
		}
		u.passwords = slices.Delete(slices.Clone(u.passwords), at, at+1)
		return nil
	case '(':
		return u.addSelector(value)
	}
	return u.permit(rule)
}

// addSelector adds a selector. rules begins after its opening parenthesis.
func (u *user) addSelector(rules string) error {
	rules, ok := strings.CutSuffix(rules, ")")
	if !ok {
		return refused(asSyntax, "no closing parenthesis after the rules of a selector")
	}
	s := new(permissions)
	for i, rule := range strings.Fields(rules) {
		if err := s.permit(rule); err != nil {
			return fmt.Errorf("rule %d of a selector: %w", i+1, err)
		}
	}
	u.selectors = append(slices.Clip(u.selectors), s)
	return nil
}

// permit applies one rule on keys, channels or commands. The lists may be those of a published
// user, so they are replaced instead of changed.
func (p *permissions) permit(rule string) error {
	switch strings.ToLower(rule) {
	case "allkeys", "~*":
		p.keys = []keyRule{{bothWays, []byte("*")}}
		return nil
	case "resetkeys":
		p.keys = nil
		return nil
	case "allcommands":
		return p.addCommand(true, "@all")
	case "nocommands":
		return p.addCommand(false, "@all")
	case "allchannels", "&*":
		p.channels = [][]byte{[]byte("*")}
		return nil
	case "resetchannels":
		p.channels = nil
		return nil
	}
	switch value := rule[1:]; rule[0] {
	case '~':
		return p.addKeys(keyRule{bothWays, []byte(value)})
	case '%':
		k, err := keyRuleOf(value)
		if err != nil && !p.allKeys() {
			return err
		}
		return p.addKeys(k)
	case '&':
		return p.addChannels(value)
	case '+', '-':
		return p.addCommand(rule[0] == '+', strings.ToLower(value))
	}
	return errRule
}

// sumOf returns the SHA-256 of the password in a rule, or the hash in the rule.
func sumOf(rule string) (sum [sha256.Size]byte, err error) {
	if rule[0] == '>' || rule[0] == '<' {
		return sha256.Sum256([]byte(rule[1:])), nil
	}
	if b, err := hex.DecodeString(rule[1:]); err != nil || copy(sum[:], b) != len(sum) || len(b) != len(sum) {
		return sum, refused(asHash, "want %d hexadecimal digits of SHA-256 after %c", 2*len(sum), rule[0])
	}
	return sum, nil
}

// spaces are the characters that patterns and names must not contain, since users are listed as
// lines of words.
const spaces = " \t\n\v\f\r\x00"

// keyRuleOf parses a rule of the form %RW~pattern. rule begins after the %.
func keyRuleOf(rule string) (k keyRule, err error) {
	letters, pattern, ok := strings.Cut(rule, "~")
	k.pattern = []byte(pattern)
	for _, c := range strings.ToUpper(letters) {
		switch c {
		case 'R':
			k.access |= resp.AccessRead
		case 'W':
			k.access |= resp.AccessWrite
		default:
			ok = false
		}
	}
	if !ok || k.access == 0 {
		return k, refused(asSyntax, "want %%R~pattern, %%W~pattern or %%RW~pattern")
	}
	return k, nil
}

// allKeys reports whether the last rule on keys was allkeys.
func (p *permissions) allKeys() bool {
	return len(p.keys) == 1 && p.keys[0].access == bothWays && string(p.keys[0].pattern) == "*"
}

// allChannels reports whether the last rule on channels was allchannels.
func (p *permissions) allChannels() bool { return len(p.channels) == 1 && string(p.channels[0]) == "*" }

// addKeys adds a rule. Rules with the same pattern become one, with the access of both.
func (p *permissions) addKeys(k keyRule) error {
	switch {
	case p.allKeys():
		return refused(asKeys, "a pattern of keys after allkeys has no effect: use resetkeys first")
	case bytes.ContainsAny(k.pattern, spaces):
		return refused(asSyntax, "a pattern of keys contains a blank")
	}
	p.keys = slices.Clone(p.keys)
	for i := range p.keys {
		if bytes.Equal(p.keys[i].pattern, k.pattern) {
			p.keys[i].access |= k.access
			return nil
		}
	}
	p.keys = append(p.keys, k)
	return nil
}

func (p *permissions) addChannels(pattern string) error {
	switch {
	case p.allChannels():
		return refused(asChannels, "a pattern of channels after allchannels has no effect: use resetchannels first")
	case strings.ContainsAny(pattern, spaces):
		return refused(asSyntax, "a pattern of channels contains a blank")
	}
	if !slices.ContainsFunc(p.channels, func(c []byte) bool { return string(c) == pattern }) {
		p.channels = append(slices.Clip(p.channels), []byte(pattern))
	}
	return nil
}

// addCommand adds a rule on commands. Earlier rules that it overrules are removed.
func (p *permissions) addCommand(allow bool, what string) error {
	rule := commandRule{allow: allow, command: what, text: what}
	switch category, ok := strings.CutPrefix(what, "@"); {
	case what == "@all":
		p.commands = nil
		if allow {
			p.commands = []commandRule{{allow: true, all: true, text: what}}
		}
		return nil
	case ok:
		var err error
		rule.command = ""
		if rule.categories, err = resp.ParseCategory(category); err != nil && !unsupportedCategories[category] {
			return refused(asUnknown, "unknown category %q", category)
		}
	default:
		if err := checkCommand(allow, what); err != nil {
			return err
		}
	}
	p.commands = append(slices.DeleteFunc(slices.Clone(p.commands), func(r commandRule) bool {
		rest, ok := strings.CutPrefix(r.text, what)
		return ok && (rest == "" || rest[0] == '|')
	}), rule)
	return nil
}

// checkCommand returns an error if there can be no rule on a command, subcommand or first argument.
func checkCommand(allow bool, what string) error {
	if resp.HasCommand(what) || unsupportedCommands[what] {
		return nil
	}
	name, argument, hasArgument := strings.Cut(what, "|")
	switch sub, _, hasMore := strings.Cut(argument, "|"); {
	case !resp.HasCommand(name) && !unsupportedCommands[name], !hasArgument:
		return refused(asUnknown, "unknown command %q", strings.ReplaceAll(what, "|", " "))
	case !allow && !resp.HasSubcommands(name):
		return refused(asUnknown, "a first argument of %q can only be allowed, not forbidden", name)
	case argument == "":
		return refused(asSyntax, "unknown command %q", strings.ReplaceAll(what, "|", " "))
	case hasMore && resp.HasCommand(name+"|"+sub):
		return refused(asFirst, "unknown command %q", strings.ReplaceAll(what, "|", " "))
	case resp.HasSubcommands(name):
		return refused(asUnknown, "unknown command %q", strings.ReplaceAll(what, "|", " "))
	case hasMore:
		return refused(asSyntax, "several arguments of %q, want only the first", name)
	case strings.ContainsAny(argument, spaces):
		return refused(asSyntax, "a first argument of %q contains a blank", name)
	}
	return nil
}
