// Package open measures how long the opening of a store takes, compared with reading as many bytes
// from its disk: after the store was closed, and after it was killed, with each kind of checkpoint.
package open
