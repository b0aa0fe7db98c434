package resp

import "strconv"

// The replies of the protocol, each appended to out. What differs between RESP2
// and RESP3 takes resp3.

func appendSimple(out []byte, text string) []byte {
	out = append(out, '+')
	out = append(out, text...)
	return append(out, "\r\n"...)
}

// appendError appends an error. text begins with its code, such as ERR.
func appendError(out []byte, text string) []byte {
	out = append(out, '-')
	out = append(out, oneLine.Replace(text)...)
	return append(out, "\r\n"...)
}

func appendInt(out []byte, n int64) []byte { return appendHead(out, ':', n) }

func appendHead(out []byte, kind byte, n int64) []byte {
	out = append(out, kind)
	out = strconv.AppendInt(out, n, 10)
	return append(out, "\r\n"...)
}

func appendBulk[T string | []byte](out []byte, value T) []byte {
	out = appendHead(out, '$', int64(len(value)))
	out = append(out, value...)
	return append(out, "\r\n"...)
}

func appendNull(out []byte, resp3 bool) []byte {
	if resp3 {
		return append(out, "_\r\n"...)
	}
	return append(out, "$-1\r\n"...)
}

func appendNullArray(out []byte, resp3 bool) []byte {
	if resp3 {
		return append(out, "_\r\n"...)
	}
	return append(out, "*-1\r\n"...)
}

// appendStrings appends an array of them.
func appendStrings(out []byte, all []string) []byte {
	out = appendArray(out, len(all))
	for _, s := range all {
		out = appendBulk(out, s)
	}
	return out
}

// appendSet announces n elements, which RESP2 has as an array.
func appendSet(out []byte, resp3 bool, n int) []byte {
	if resp3 {
		return appendHead(out, '~', int64(n))
	}
	return appendArray(out, n)
}

func appendArray(out []byte, n int) []byte { return appendHead(out, '*', int64(n)) }

// appendMap announces n pairs, which RESP2 has as an array.
func appendMap(out []byte, resp3 bool, n int) []byte {
	if resp3 {
		return appendHead(out, '%', int64(n))
	}
	return appendArray(out, 2*n)
}

// appendText appends text for people's eyes.
func appendText(out []byte, resp3 bool, text string) []byte {
	if !resp3 {
		return appendBulk(out, text)
	}
	out = appendHead(out, '=', int64(len("txt:")+len(text)))
	out = append(out, "txt:"...)
	out = append(out, text...)
	return append(out, "\r\n"...)
}
