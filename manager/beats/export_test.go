package beats

import "time"

// Pauses of a client.
const (
	PauseOpen = pauseOpen
	PauseAsk  = pauseAsk
)

// SetClock makes now the client's clock.
func (c *Client) SetClock(now func() time.Time) { c.now = now }
