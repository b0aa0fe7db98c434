// Package namespaces runs tests in Linux namespaces of their own: what they mount, and the
// networks they make, are not seen by other programs and end with the tests.
package namespaces
