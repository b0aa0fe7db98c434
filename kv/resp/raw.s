// Without a file like this one the compiler refuses yieldHeld in raw.go, which has no body.
