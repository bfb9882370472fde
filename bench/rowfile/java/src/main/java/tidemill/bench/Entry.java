package tidemill.bench;

import java.io.Serializable;

/** A line of an access log. */
public final class Entry implements Serializable {
    private static final long serialVersionUID = 1;

    public String ip;
    public String ident;
    public String user;
    public long ts;
    public String method;
    public String path;
    public String protocol;
    public int status;
    public Long bytes;
    public String referrer;
    public String userAgent;
}
