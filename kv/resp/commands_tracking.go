package resp

import (
	"fmt"
	"slices"
	"strings"
)

// CLIENT TRACKING and the other subcommands of CLIENT about tracking.

const (
	errTwoRedirects  = "ERR A client can only redirect to a single other client"
	errNoRedirect    = "ERR The client ID you want redirect to does not exist"
	errPrefix        = "ERR PREFIX option requires BCAST mode to be enabled"
	errSwitchBcast   = "ERR You can't switch BCAST mode on/off before disabling tracking for this client, and then re-enabling it with a different mode."
	errOptBcast      = "ERR OPTIN and OPTOUT are not compatible with BCAST"
	errBothOpts      = "ERR You can't specify both OPTIN mode and OPTOUT mode"
	errSwitchOpt     = "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then re-enabling it with a different mode."
	errPrefixOverlap = "ERR Prefix '%s' overlaps with another provided prefix '%s'. Prefixes for a single client must not overlap."
	errPrefixExists  = "ERR Prefix '%s' overlaps with an existing prefix '%s'. Prefixes for a single client must not overlap."
	errCaching       = "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled"
	errCachingYes    = "ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode."
	errCachingNo     = "ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode."
)

// trackingRequest is what CLIENT TRACKING asks for.
type trackingRequest struct {
	trackingOptions
	redirect int64 // 0: none
	prefixes []string
}

func clientTracking(c *client, r request) {
	c.flush()
	a, refusal := c.trackingRequestOf(r)
	switch on := r.arg(2); {
	case refusal != "":
	case is(on, "off"):
		c.untrack()
	case !is(on, "on"):
		refusal = errSyntax
	default:
		refusal = c.track(a)
	}
	if refusal != "" {
		c.fail(refusal)
		return
	}
	c.out = appendSimple(c.reply(), "OK")
}

func (c *client) trackingRequestOf(r request) (a trackingRequest, refusal string) {
	for i := 3; i < r.len(); i++ {
		switch option := r.arg(i); {
		case is(option, "redirect") && i+1 < r.len():
			i++
			if a.redirect != 0 {
				return a, errTwoRedirects
			}
			id, ok := parseInt(r.arg(i))
			if !ok {
				return a, errNotInteger
			}
			if c.server.withID(id) == nil {
				return a, errNoRedirect
			}
			a.redirect = id
		case is(option, "bcast"):
			a.bcast = true
		case is(option, "optin"):
			a.optIn = true
		case is(option, "optout"):
			a.optOut = true
		case is(option, "noloop"):
			a.noLoop = true
		case is(option, "prefix") && i+1 < r.len():
			i++
			a.prefixes = append(a.prefixes, string(r.arg(i)))
		default:
			return a, errSyntax
		}
	}
	return a, ""
}

// track begins the client's tracking, or changes it. refusal is the error reply.
func (c *client) track(a trackingRequest) (refusal string) {
	old := c.tracker
	switch {
	case !a.bcast && len(a.prefixes) > 0:
		return errPrefix
	case old != nil && old.bcast != a.bcast:
		return errSwitchBcast
	case a.bcast && (a.optIn || a.optOut):
		return errOptBcast
	case a.optIn && a.optOut:
		return errBothOpts
	case old != nil && (a.optIn && old.optOut || a.optOut && old.optIn):
		return errSwitchOpt
	}
	tr := &tracker{client: c, trackingOptions: a.trackingOptions}
	if a.bcast {
		if old != nil {
			tr.prefixes = old.prefixes
		}
		if tr.prefixes, refusal = joinPrefixes(tr.prefixes, a.prefixes); refusal != "" {
			return refusal
		}
	}
	if a.redirect != 0 {
		if tr.to = c.server.withID(a.redirect); tr.to == nil {
			return errNoRedirect
		}
	}
	c.subscriber()
	if !c.server.tracking.begin(tr) {
		return errMemory
	}
	c.tracker = tr
	c.describe(func(i *clientInfo) {
		i.tracking, i.redirect = "t", a.redirect
		if a.bcast {
			i.tracking = "tB"
		}
	})
	return ""
}

// joinPrefixes adds prefixes to those of a client. No prefix may begin with another one. If there are
// none at all, the client tracks all keys.
func joinPrefixes(old, more []string) (all []string, refusal string) {
	overlap := func(a, b string) bool { return strings.HasPrefix(a, b) || strings.HasPrefix(b, a) }
	for i, p := range more {
		for _, of := range old {
			if overlap(p, of) {
				return nil, fmt.Sprintf(errPrefixExists, text([]byte(p), shown), text([]byte(of), shown))
			}
		}
		for _, of := range more[i+1:] {
			if overlap(p, of) {
				return nil, fmt.Sprintf(errPrefixOverlap, text([]byte(p), shown), text([]byte(of), shown))
			}
		}
	}
	if all = append(slices.Clone(old), more...); len(all) == 0 {
		all = []string{""}
	}
	return all, ""
}

func clientCaching(c *client, r request) {
	yes, tr := is(r.arg(2), "yes"), c.tracker
	switch {
	case tr == nil:
		c.fail(errCaching)
	case !yes && !is(r.arg(2), "no"):
		c.fail(errSyntax)
	case yes && !tr.optIn:
		c.fail(errCachingYes)
	case !yes && !tr.optOut:
		c.fail(errCachingNo)
	default:
		c.asked = true
		c.out = appendSimple(c.reply(), "OK")
	}
}

// redirect returns the number of the client that is told of changes, 0 for the client itself, and
// -1 without tracking.
func (c *client) redirect() int64 {
	switch {
	case c.tracker == nil:
		return -1
	case c.tracker.to == nil:
		return 0
	}
	return c.tracker.to.id
}

func clientGetRedir(c *client, _ request) { c.out = appendInt(c.reply(), c.redirect()) }

func clientTrackingInfo(c *client, _ request) {
	flags, prefixes := []string{"off"}, []string(nil)
	if tr := c.tracker; tr != nil {
		c.server.tracking.mu.Lock()
		broken := tr.broken
		c.server.tracking.mu.Unlock()
		flags = []string{"on"}
		for _, f := range []struct {
			set  bool
			name string
		}{
			{tr.bcast, "bcast"}, {tr.optIn, "optin"}, {tr.optIn && c.asked, "caching-yes"}, {tr.optOut, "optout"}, {tr.optOut && c.asked, "caching-no"},
			{tr.noLoop, "noloop"}, {broken, "broken_redirect"},
		} {
			if f.set {
				flags = append(flags, f.name)
			}
		}
		prefixes = tr.prefixes
	}
	out := appendBulk(appendMap(c.reply(), c.resp3, 3), "flags")
	out = appendSet(out, c.resp3, len(flags))
	for _, flag := range flags {
		out = appendBulk(out, flag)
	}
	out = appendInt(appendBulk(out, "redirect"), c.redirect())
	c.out = appendStrings(appendBulk(out, "prefixes"), prefixes)
}
