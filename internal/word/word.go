// Package word stores words for other threads to load, without a barrier where
// the processor needs none.
package word
