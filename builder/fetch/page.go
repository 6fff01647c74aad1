package fetch

import (
	"bufio"
	"bytes"
	"io"
	"mime"
	"net/http"

	"airlift/internal/fault"
)

// PageHint is the hint for an answer that is not the site's.
const PageHint = "a proxy, a firewall or a login page answers: open the URL in a browser; check HTTPS_PROXY, NO_PROXY and --mirror"

// IsPage reports whether an answer is HTML or XML. No document that is requested begins like that.
func IsPage(answer []byte) bool {
	return bytes.HasPrefix(bytes.TrimLeft(answer, "\xef\xbb\xbf \t\r\n"), []byte("<"))
}

// NotAPage returns an error if the answer from url is a web page.
func NotAPage(url string, answer []byte) error {
	if !IsPage(answer) {
		return nil
	}
	return Final(fault.New(fault.Failure, "%s returned a web page (HTML) instead of the file", url).Hint(PageHint))
}

// filePage returns the content of a file that is downloaded, and an error if it is a web page. A
// file may begin like a page, but then it has another type.
func filePage(url string, resp *http.Response) (io.Reader, error) {
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind != "text/html" {
		return resp.Body, nil
	}
	content := bufio.NewReader(resp.Body)
	first, _ := content.Peek(512) // an error comes back when the content is read
	return content, NotAPage(url, first)
}
