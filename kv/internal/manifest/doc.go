// Package manifest is what a store keeps on its device beside its log: the manifest,
// which recovery reads first, and the objects that it names.
//
// The manifest is one piece of metadata, replaced as a whole and atomically. It holds the
// store's layout, the last commit, and the checkpoints that are kept. An object holds a
// copy of the index or a snapshot of a part of the log. An object that the manifest does
// not name does not exist for the store.
//
// The package knows the format and its rules. It does not know a running store: kv
// decides what is written and when.
package manifest
