//go:build !unix

package resp

func infoCPU(*Server) string { return "" }
