// Package durable measures writes that are durable when they return: of a store, of another store,
// and of the disk alone.
package durable
