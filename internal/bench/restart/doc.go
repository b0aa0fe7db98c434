// Package restart measures how soon a store is as fast as before it was killed, when most of what
// it reads is in a Redy cache: warm, when it takes the cache up, and cold, when the cache is gone.
package restart
