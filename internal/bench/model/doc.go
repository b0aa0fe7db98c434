// Package model measures caches for package model, which measures nothing
// itself: it builds models, as figure 9 of the paper says, and checks how well caches
// keep the SLOs that their configurations were chosen for (figures 13 and 14).
package model
