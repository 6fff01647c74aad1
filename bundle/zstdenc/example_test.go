package zstdenc_test

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"strings"

	"github.com/klauspost/compress/zstd"

	"airlift/bundle/zstdenc"
)

func ExampleNewWriter() {
	var packed bytes.Buffer
	w, err := zstdenc.NewWriter(&packed, 8<<20)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := io.WriteString(w, strings.Repeat("to be or not to be, ", 1000)); err != nil {
		w.Close()
		log.Fatal(err)
	}
	if err := w.Close(); err != nil {
		log.Fatal(err)
	}

	r, err := zstd.NewReader(&packed)
	if err != nil {
		log.Fatal(err)
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(b), "bytes:", string(b[:18]))
	// Output: 20000 bytes: to be or not to be
}
