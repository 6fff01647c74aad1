package etcd

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// pageSize is how many values one request of Find reads.
const pageSize = 100

// Find returns the first key below a prefix whose value matches, "" for none. It reads page by page: a cluster may have
// gigabytes. A member that is behind the others first gets what they have.
func (c *Client) Find(ctx context.Context, prefix string, matches func(value []byte) bool) (key string, err error) {
	from, end := prefix, clientv3.GetPrefixRangeEnd(prefix)
	for {
		var page *clientv3.GetResponse
		err := c.try(ctx, "reading values", func(ctx context.Context) (err error) {
			page, err = c.api.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(pageSize))
			return err
		})
		if err != nil {
			return "", err
		}
		for _, kv := range page.Kvs {
			if matches(kv.Value) {
				return string(kv.Key), nil
			}
			from = string(kv.Key) + "\x00"
		}
		if !page.More {
			return "", nil
		}
	}
}
