package tidemill.bench;

import java.io.Serializable;

/** A flight. What can be missing is an object, the rest is not. */
public final class Flight implements Serializable {
    private static final long serialVersionUID = 1;

    public int year;
    public int month;
    public int day;
    public Integer depTime;
    public int schedDepTime;
    public Integer depDelay;
    public Integer arrTime;
    public int schedArrTime;
    public Integer arrDelay;
    public String carrier;
    public int flight;
    public String tailnum;
    public String origin;
    public String dest;
    public Integer airTime;
    public int distance;
    public int hour;
    public int minute;
    public long timeHour;
}
