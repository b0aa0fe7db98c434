// Package prefetch asks the processor to bring memory closer before it is used.
package prefetch
