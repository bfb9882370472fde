package tidemill.bench;

import java.io.Serializable;

/** A wide event. Fields are named and ordered as the columns are. */
public final class Event implements Serializable {
    private static final long serialVersionUID = 1;

    public String eventId;
    public long ts;
    public String eventType;
    public String userId;
    public String sessionId;
    public String country;
    public String region;
    public String city;
    public String language;
    public String device;
    public String os;
    public String osVersion;
    public String browser;
    public String browserVersion;
    public String userAgent;
    public String ip;
    public String method;
    public String url;
    public String path;
    public String referrer;
    public String host;
    public String service;
    public String pod;
    public String datacenter;
    public String traceId;
    public String spanId;
    public String level;
    public String message;
    public String experiment;
    public String variant;
    public String campaign;
    public String currency;
    public String contentType;
    public String cache;
    public String tls;
    public int status;
    public long bytes;
    public double duration;
    public Input input;

    /** What the request asked for. */
    public static final class Input implements Serializable {
        private static final long serialVersionUID = 1;

        public String query;
        public int page;
        public boolean loggedIn;
        public String[] items;
        public String form;
    }
}
