package bundle

import "airlift/bundle/head"

// Trailer is the end of the file. It describes the whole bundle.
func (f *File) Trailer() head.Trailer { return f.trailer }

// Payload reads the pieces of the payload, each compared with its digest.
func (f *File) Payload() *head.Payload { return f.payload }
