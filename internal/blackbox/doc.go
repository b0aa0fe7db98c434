// Package blackbox tests the redykv binary from outside. A load sends random commands over
// the Redis protocol to a served store. A model, independent of the store's code, tracks
// the values that every key may have, from the replies, the commands in flight and the
// promised durability.
//
// TestPowerCut cuts the power of the file system below the store. TestDamage damages the
// store's files. TestRestarts kills a store with a Redy cache, which it takes up again. TestService kills, stops and partitions the processes of a whole Redy
// service. docs/testing.md describes how to run them.
package blackbox
