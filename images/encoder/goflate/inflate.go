// Copyright 2009 The Go Authors. All rights reserved.
// Use of this source code is governed by a BSD-style
// license that can be found in the LICENSE file.

package flate

// These are the declarations of Go's inflate.go that the encoder uses.

// maxNumLit is the number of codes of literals and lengths, of which Huffman tables with fixed codes have two more.
const maxNumLit = 286

// An InternalError reports an error in the flate code itself.
type InternalError string

func (e InternalError) Error() string { return "flate: internal error: " + string(e) }
