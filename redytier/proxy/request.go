package proxy

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"

	"github.com/redykv/redykv/redytier"
)

// maxRequest bounds the JSON of a request, in bytes.
const maxRequest = 64 << 10

// Request is the JSON that describes a new cache. Its fields are named as in the manager's
// Allocate.
type Request struct {
	Capacity        int64         `json:"capacity"`                   // bytes; required
	SLO             SLO           `json:"slo,omitzero"`               // unset: unconstrained
	DurationSeconds int64         `json:"duration_seconds,omitempty"` // how long it will be needed; 0: until deleted
	RegionSize      int64         `json:"region_size,omitempty"`      // bytes, a power of two; 0: chosen by the capacity
	Configuration   Configuration `json:"configuration,omitzero"`     // unset: the manager chooses
	Transport       string        `json:"transport,omitempty"`        // shm, tcp or verbs; unset: the manager chooses
	CloudRegion     string        `json:"cloud_region,omitempty"`     // unset: the manager's
}

// SLO is the service level of a cache. Bounds of 0 are unconstrained.
type SLO struct {
	MaxLatencyUs      float64 `json:"max_latency_us,omitempty"`      // average, in microseconds
	MinThroughputMops float64 `json:"min_throughput_mops,omitempty"` // million operations a second
	RecordSize        int     `json:"record_size,omitempty"`         // bytes; required with a bound
	Operations        string  `json:"operations,omitempty"`          // that it applies to: reads or writes; unset: both
}

// Configuration is (c, s, b, q) of the Redy paper's table 2.
type Configuration struct {
	ClientThreads int `json:"client_threads"`
	ServerThreads int `json:"server_threads"`
	BatchSize     int `json:"batch_size"`
	QueueDepth    int `json:"queue_depth"`
}

// operations are the values of SLO.Operations.
var operations = map[string]redytier.Operations{
	"": redytier.ReadsAndWrites, "reads": redytier.ReadsOnly, "writes": redytier.WritesOnly,
}

// maxSeconds bounds durations, so that they are not too long for a time.Duration.
const maxSeconds = 1 << 32

// readRequest reads the JSON of a request. It must be application/json, which a web page of
// another origin cannot send.
func readRequest(w http.ResponseWriter, r *http.Request) (q Request, err error) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return q, problemf(CodeMediaType, "Content-Type %.60q: want application/json", r.Header.Get("Content-Type"))
	}
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest))
	d.DisallowUnknownFields()
	if err = d.Decode(&q); err == nil {
		if _, more := d.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("want one JSON object and nothing after it")
		}
	}
	switch {
	case asType[*http.MaxBytesError](err):
		return q, problemf(CodeTooLarge, "the request has more than %d bytes", maxRequest)
	case err != nil:
		return q, problemf(CodeInvalid, "the request is not as expected: %w", err)
	}
	return q, nil
}

// config returns the cache's configuration, on top of base.
func (q Request) config(base redytier.Config) (redytier.Config, error) {
	c := base
	ops, known := operations[q.SLO.Operations]
	latency := q.SLO.MaxLatencyUs * float64(time.Microsecond)
	switch {
	case !known:
		return c, problemf(CodeInvalid, "slo.operations %.20q: want reads, writes or none for both", q.SLO.Operations)
	case q.DurationSeconds < 0 || q.DurationSeconds > maxSeconds:
		return c, problemf(CodeInvalid, "duration_seconds %d: want 0 to %d", q.DurationSeconds, int64(maxSeconds))
	case latency != 0 && !(latency >= 1 && latency <= maxSeconds*float64(time.Second)): // less than 1 ns would be unconstrained
		return c, problemf(CodeInvalid, "slo.max_latency_us %g: want 0, or 0.001 to %g", q.SLO.MaxLatencyUs, float64(maxSeconds*1e6))
	}
	c.Capacity, c.RegionSize, c.CloudRegion = q.Capacity, q.RegionSize, q.CloudRegion
	c.Duration = time.Duration(q.DurationSeconds) * time.Second
	c.Configuration = redytier.Configuration(q.Configuration)
	c.SLO = redytier.SLO{
		MaxLatency: time.Duration(latency), MinThroughput: q.SLO.MinThroughputMops * 1e6, RecordSize: q.SLO.RecordSize, Operations: ops,
	}
	if q.Transport != "" {
		c.Transport = q.Transport
	}
	if err := c.Check(); err != nil {
		return c, &problem{code: CodeInvalid, message: fmt.Sprintf("the cache is not possible: %v", err), err: err}
	}
	return c, nil
}
