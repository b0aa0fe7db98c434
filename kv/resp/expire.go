package resp

import (
	"math"
	"strings"

	"github.com/redykv/redykv/kv"
)

// The commands on expiry. Times are the store's: milliseconds of Unix time. For all
// commands of a batch it is the same moment, as in Redis.

// timeUnit is what a command about expiry counts in, by its name: milliseconds, as
// in PTTL, or seconds.
func timeUnit(name string) int64 {
	if name[0] == 'p' {
		return 1
	}
	return 1000
}

// ttl is TTL and PTTL, EXPIRETIME and PEXPIRETIME.
func ttl(c *client, r request) {
	name := strings.ToLower(string(r.arg(0)))
	rp := c.read(replyTTL, r.arg(1))
	rp.n = timeUnit(name)
	if strings.HasSuffix(name, "time") {
		rp.m = 1
	}
}

// ttlOf is what the commands say of a key that exists.
func (c *client) ttlOf(expires, unit int64, absolute bool) int64 {
	if expires == 0 {
		return -1
	}
	if !absolute {
		expires = max(expires-c.began.UnixMilli(), 0)
	}
	return int64((uint64(expires) + uint64(unit/2)) / uint64(unit))
}

// expire is EXPIRE, PEXPIRE, EXPIREAT and PEXPIREAT.
func expire(c *client, r request) {
	flags, err := expireFlags(r)
	if err != "" {
		c.fail(err)
		return
	}
	name := strings.ToLower(string(r.arg(0)))
	unit := timeUnit(name)
	n, ok := parseInt(r.arg(2))
	if !ok {
		c.fail(errNotInteger)
		return
	}
	if n > math.MaxInt64/unit || n < math.MinInt64/unit {
		c.fail(badExpiry(r))
		return
	}
	n *= unit
	now := c.began.UnixMilli()
	if !strings.HasSuffix(name, "at") {
		if n > math.MaxInt64-now {
			c.fail(badExpiry(r))
			return
		}
		n += now
	}
	m := c.modify(r.arg(1), changeExpiry, replyWhether)
	m.expires, m.delta, m.flags = n, now, flags
}

func expireFlags(r request) (flags modFlags, err string) {
	for i := 3; i < r.len(); i++ {
		switch option := r.arg(i); {
		case is(option, "nx"):
			flags |= modNX
		case is(option, "xx"):
			flags |= modXX
		case is(option, "gt"):
			flags |= modGT
		case is(option, "lt"):
			flags |= modLT
		default:
			return 0, "ERR Unsupported option " + text(option, shown)
		}
	}
	switch {
	case flags&modNX != 0 && flags != modNX:
		return 0, errExpireNX
	case flags&modGT != 0 && flags&modLT != 0:
		return 0, errExpireGT
	}
	return flags, ""
}

// changeExpiry takes expires for the new moment, and delta for now. A key without
// an expiry counts as one that expires at the end of time.
func changeExpiry(m *modification) kv.Verdict {
	is := m.u.Expires
	switch {
	case !m.found,
		m.flags&modNX != 0 && is != 0,
		m.flags&modXX != 0 && is == 0,
		m.flags&modGT != 0 && (is == 0 || m.expires <= is),
		m.flags&modLT != 0 && is != 0 && m.expires >= is:
		return kv.Keep
	case m.expires <= m.delta:
		return kv.Remove
	}
	m.u.Expires = m.expires
	m.u.New = append(m.u.New, m.u.Old...)
	return kv.Put
}

func persist(c *client, r request) { c.modify(r.arg(1), changePersist, replyWhether) }

func changePersist(m *modification) kv.Verdict {
	if !m.found || m.u.Expires == 0 {
		return kv.Keep
	}
	m.u.Expires = 0
	m.u.New = append(m.u.New, m.u.Old...)
	return kv.Put
}
