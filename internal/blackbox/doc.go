// Package blackbox tests the redykv binary from outside. A load of random commands runs
// over the Redis protocol against a served store, and a [Model] that knows nothing of the
// store's insides says which value every key may have: from what was answered, what was
// in flight, and what the durability promised.
//
// Three tests use it: TestPowerCut cuts the power of the file system below the store,
// TestDamage damages the store's files, and TestService kills, stops and partitions the
// processes of a whole Redy service. docs/testing.md says how they are run.
package blackbox
