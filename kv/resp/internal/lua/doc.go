// Package lua runs scripts in Lua 5.1 as Redis runs them, on the interpreter of gopher-lua. It
// knows nothing of a server: its user gives it the functions of the library "redis".
//
// A [State] is an interpreter with Redis's sandbox: the libraries that cannot reach the machine,
// cjson, cmsgpack, struct and bit, and globals that a script can neither add nor change. [Compile]
// compiles a script for all States.
//
// Three things keep a script from harming the program:
//
//   - A [Meter] is called for every instruction. It asks the user from time to time whether the
//     script may go on, and ends it otherwise; the script cannot catch that. The library's functions
//     that may take long call it too.
//   - Everything that makes strings is counted before it is made, so this package has functions of
//     its own for strings and patterns, and Compile turns the operator .. into a call of one. Once a
//     script may have used its memory, the Go heap is measured.
//   - The nesting of a script's source, its calls, its registers and its stack are limited.
package lua
