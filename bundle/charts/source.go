package charts

import "context"

// source loads the chart and its dependencies.
func (c *Client) source(ctx context.Context, want Chart) (source, error) {
	s, err := c.load(ctx, want)
	if err != nil {
		return s, err
	}
	if err := installable(s.chart); err != nil {
		return s, err
	}
	if err := c.complete(ctx, s.chart, s.dir, 0); err != nil {
		return s, err
	}
	return s, checkFiles(s.chart)
}
