package kubernetes

import "slices"

// Right is a permission that a manager needs. All resources are of the core API group.
type Right struct {
	Verb, Resource string
	Namespaced     bool // in the namespace of the pods
}

// rights are those for which calls are made.
var rights = []Right{
	{"get", "nodes", false},
	{"list", "nodes", false},
	{"watch", "nodes", false},
	{"get", "pods", true},
	{"list", "pods", true},
	{"watch", "pods", true},
	{"create", "pods", true},
	{"patch", "pods", true},
	{"delete", "pods", true},
	{"get", "secrets", true},
	{"list", "secrets", true},
	{"create", "secrets", true},
	{"patch", "secrets", true},
	{"delete", "secrets", true},
	{"create", "events", true},
}

// Rights returns all permissions that a manager needs.
func Rights() []Right { return slices.Clone(rights) }
