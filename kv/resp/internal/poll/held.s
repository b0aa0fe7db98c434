// The compiler accepts Yield in held.go, which has no body, because this file exists.
