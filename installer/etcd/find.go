package etcd

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// pageSize is how many values one request of Walk reads.
const pageSize = 100

// Find returns the first key below a prefix whose value matches, "" for none.
func (c *Client) Find(ctx context.Context, prefix string, matches func(value []byte) bool) (found string, err error) {
	err = c.Walk(ctx, prefix, func(key string, value []byte) (stop bool) {
		if matches(value) {
			found = key
		}
		return found != ""
	})
	return found, err
}

// Walk visits the keys below a prefix, until visit returns true. It reads page by page: a cluster may have gigabytes. A member that is
// behind the others first gets what they have.
func (c *Client) Walk(ctx context.Context, prefix string, visit func(key string, value []byte) (stop bool)) error {
	from, end := prefix, clientv3.GetPrefixRangeEnd(prefix)
	for {
		var page *clientv3.GetResponse
		err := c.try(ctx, "reading values", func(ctx context.Context) (err error) {
			page, err = c.api.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(pageSize))
			return err
		})
		if err != nil {
			return err
		}
		for _, kv := range page.Kvs {
			if visit(string(kv.Key), kv.Value) {
				return nil
			}
			from = string(kv.Key) + "\x00"
		}
		if !page.More {
			return nil
		}
	}
}
